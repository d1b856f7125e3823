"""What vLLM does at each step of a server with a connector that speculates, and most steps of Lynx's have no use for: hooks around each
layer, where nothing is copied; questions for drafts, which Lynx's proposer never makes; and their verification.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.v1.engine.core import EngineCore
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from .messages import Step
from .proposer import LynxProposer


def propose_nothing() -> None:
    """Has this process's engine ask its worker for no proposals after a step, which is a message there and back."""
    EngineCore.post_step = _nothing_was_proposed


def compute_plainly() -> None:
    """Has this process's worker, whose connector vLLM has by now, compute a step for which nothing is copied as in a server without a
    connector, and one that verifies nothing as in a server that never speculates."""
    plainly = Plainly(_execute, _sample)

    def execute_model(runner: Any, *arguments: Any, **named: Any) -> Any:
        return plainly.execute(runner, *arguments, **named)

    def sample_tokens(runner: Any, *arguments: Any, **named: Any) -> Any:
        return plainly.sample(runner, *arguments, **named)

    GPUModelRunner.execute_model = execute_model
    GPUModelRunner.sample_tokens = sample_tokens


class Plainly:
    """Around both halves of vLLM's steps: what a step has no use for is out of vLLM's sight from the beginning of the first to the end of
    the second."""

    def __init__(self, execute: Any, sample: Any) -> None:
        self._execute = execute
        self._sample = sample
        self._connector = kv_transfer_state._KV_CONNECTOR_AGENT

    def execute(self, runner: Any, output: Any, *arguments: Any, **named: Any) -> Any:
        """The first half, which has a result only where there is no second one."""
        # Where there are several connectors, none of them is ours and the others' hooks are called.
        step = getattr(output.kv_connector_metadata, "step", None)
        if isinstance(step, Step) and not step.loads and not step.stores:
            kv_transfer_state._KV_CONNECTOR_AGENT = None
        # Others' proposers propose.
        if not output.scheduled_spec_decode_tokens and isinstance(getattr(runner, "drafter", None), LynxProposer):
            runner.speculative_config = None
        has_ended = True
        try:
            result = self._execute(runner, output, *arguments, **named)
            has_ended = result is not None
            return result
        finally:
            if has_ended:
                self._restore(runner)

    def sample(self, runner: Any, *arguments: Any, **named: Any) -> Any:
        """The second half."""
        try:
            return self._sample(runner, *arguments, **named)
        finally:
            self._restore(runner)

    def _restore(self, runner: Any) -> None:
        kv_transfer_state._KV_CONNECTOR_AGENT = self._connector
        runner.speculative_config = runner.vllm_config.speculative_config


def _nothing_was_proposed(engine: EngineCore, model_executed: bool) -> None:
    pass


_execute = GPUModelRunner.execute_model
_sample = GPUModelRunner.sample_tokens
