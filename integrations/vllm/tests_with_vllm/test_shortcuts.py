"""A step that copies nothing and verifies nothing is computed as in a server without Lynx, and others as vLLM does."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.kv_transfer import has_kv_transfer_group, kv_transfer_state
from vllm.v1.engine.core import EngineCore
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from lynx_vllm import shortcuts
from lynx_vllm.messages import Load, Step
from lynx_vllm.proposer import LynxProposer

CONNECTOR, SPECULATION = object(), object()
LOADS = Step(loads=[Load((0,), (0,), 0, 64, True)])


class Runner:
    """A worker's, of which each half of a step says what it sees."""

    def __init__(self, drafter: object) -> None:
        self.drafter = drafter
        self.vllm_config = SimpleNamespace(speculative_config=SPECULATION)
        self.speculative_config: object = SPECULATION
        self.seen: list[tuple[bool, bool]] = []

    def see(self) -> None:
        self.seen.append((has_kv_transfer_group(), self.speculative_config is not None))


def output(step: object, drafts: dict[str, list[int]]) -> SimpleNamespace:
    """What a scheduler says of a step."""
    return SimpleNamespace(kv_connector_metadata=SimpleNamespace(step=step), scheduled_spec_decode_tokens=drafts)


@pytest.fixture(autouse=True)
def vllms_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """vLLM as it is, again after each test, with a connector and with halves of steps that do nothing."""
    monkeypatch.setattr(EngineCore, "post_step", EngineCore.post_step)
    monkeypatch.setattr(GPUModelRunner, "execute_model", GPUModelRunner.execute_model)
    monkeypatch.setattr(GPUModelRunner, "sample_tokens", GPUModelRunner.sample_tokens)
    monkeypatch.setattr(kv_transfer_state, "_KV_CONNECTOR_AGENT", CONNECTOR)
    monkeypatch.setattr(shortcuts, "_execute", lambda runner, output: runner.see())
    monkeypatch.setattr(shortcuts, "_sample", lambda runner, grammar: runner.see())
    yield


def step(runner: Any, output: SimpleNamespace) -> list[tuple[bool, bool]]:
    """One step: whether its halves see a connector, and whether they see speculation."""
    assert GPUModelRunner.execute_model(runner, output) is None
    GPUModelRunner.sample_tokens(runner, None)
    assert (kv_transfer_state._KV_CONNECTOR_AGENT, runner.speculative_config) == (CONNECTOR, SPECULATION)
    return runner.seen


@pytest.mark.parametrize(
    ("what", "drafts", "seen"),
    [
        (Step(), {}, (False, False)),
        (LOADS, {}, (True, False)),
        (Step(), {"a": [1]}, (False, True)),
        (LOADS, {"a": [1]}, (True, True)),
        # Of another connector, or of several.
        (None, {}, (True, False)),
    ],
)
def test_a_step_sees_what_it_has_a_use_for(what: object, drafts: dict[str, list[int]], seen: tuple[bool, bool]) -> None:
    shortcuts.compute_plainly()
    assert step(Runner(LynxProposer(None)), output(what, drafts)) == [seen, seen]


def test_another_proposer_is_asked_after_each_step() -> None:
    shortcuts.compute_plainly()
    assert step(Runner(object()), output(Step(), {})) == [(False, True)] * 2


def test_a_step_that_ends_early_or_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(LynxProposer(None))
    monkeypatch.setattr(shortcuts, "_execute", lambda runner, output: "nothing to compute")
    shortcuts.compute_plainly()
    assert GPUModelRunner.execute_model(runner, output(Step(), {})) == "nothing to compute"
    assert (kv_transfer_state._KV_CONNECTOR_AGENT, runner.speculative_config) == (CONNECTOR, SPECULATION)

    def fails(runner: Any, output: Any) -> None:
        raise ValueError

    monkeypatch.setattr(shortcuts, "_execute", fails)
    shortcuts.compute_plainly()
    with pytest.raises(ValueError):
        GPUModelRunner.execute_model(runner, output(Step(), {}))
    assert (kv_transfer_state._KV_CONNECTOR_AGENT, runner.speculative_config) == (CONNECTOR, SPECULATION)


def test_an_engine_asks_its_worker_for_no_proposals() -> None:
    class Core:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"{name} is asked for")

    shortcuts.propose_nothing()
    EngineCore.post_step(Core(), model_executed=True)
