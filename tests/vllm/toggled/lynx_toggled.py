"""A vLLM with Lynx that answers some requests as one without: what Lynx costs can't be told from two servers, since two plain ones
differ by several per cent already, as their memory happens to lie.

Requests whose salt begins with `plain` are scheduled, computed and sampled without connector, scheduler and speculation. One
runs at a time.
"""

from __future__ import annotations

from typing import Any

from lynx_vllm import connector, shortcuts
from lynx_vllm.scheduler import LynxScheduler
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

PLAIN = "plain"


class LynxConnector(connector.LynxConnector):
    """Lynx's, after which the worker's steps can be toggled."""

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        super().register_kv_caches(kv_caches)
        Toggle().install()


class ToggledScheduler(LynxScheduler):
    """What the scheduler's process does for one kind of request, and for the other."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        manager = self.kv_cache_manager
        self.with_lynx = (self.connector, self.num_spec_tokens, self.num_lookahead_tokens, manager.allocate_slots)
        self.without = (None, 0, 0, self._allocate)
        self.kind: type[Scheduler] = LynxScheduler

    def add_request(self, request: Request) -> None:
        """Nothing runs now."""
        is_plain = (request.cache_salt or "").startswith(PLAIN)
        self.kind = Scheduler if is_plain else LynxScheduler
        chosen = self.without if is_plain else self.with_lynx
        self.connector, self.num_spec_tokens, self.num_lookahead_tokens, self.kv_cache_manager.allocate_slots = chosen
        super().add_request(request)

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        return self.kind.schedule(self, *arguments, **named)

    def update_from_output(self, *arguments: Any) -> Any:
        return self.kind.update_from_output(self, *arguments)

    def _update_request_with_output(self, *arguments: Any, **named: Any) -> Any:
        return self.kind._update_request_with_output(self, *arguments, **named)


class Toggle:
    """What the worker's process does. A step without a connector's metadata is one of a plain request."""

    def __init__(self) -> None:
        self.connector = kv_transfer_state._KV_CONNECTOR_AGENT
        self.with_lynx = (GPUModelRunner.execute_model, GPUModelRunner.sample_tokens)
        self.without = (shortcuts._execute, shortcuts._sample)
        self.chosen = self.with_lynx

    def install(self) -> None:
        toggle = self

        def execute_model(runner: Any, output: Any, *arguments: Any, **named: Any) -> Any:
            is_plain = output.kv_connector_metadata is None
            kv_transfer_state._KV_CONNECTOR_AGENT = None if is_plain else toggle.connector
            runner.speculative_config = None if is_plain else runner.vllm_config.speculative_config
            toggle.chosen = toggle.without if is_plain else toggle.with_lynx
            return toggle.chosen[0](runner, output, *arguments, **named)

        def sample_tokens(runner: Any, *arguments: Any, **named: Any) -> Any:
            return toggle.chosen[1](runner, *arguments, **named)

        GPUModelRunner.execute_model = execute_model
        GPUModelRunner.sample_tokens = sample_tokens
