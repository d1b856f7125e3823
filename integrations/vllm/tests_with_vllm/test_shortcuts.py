"""A step that verifies nothing gives what it gives in a server that never speculates, and others what vLLM gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.engine.core import EngineCore
from vllm.v1.sample import rejection_sampler

from lynx_vllm import shortcuts

VOCABULARY = 7


class Sampler:
    """vLLM's sampler, as far as the verifier asks it."""

    def __init__(self) -> None:
        self.asked: list[torch.Tensor] = []

    def __call__(self, logits: torch.Tensor, **_: Any) -> str:
        self.asked.append(logits)
        return "sampled"


class Verifier:
    """A `RejectionSampler` with another sampler."""

    def __init__(self) -> None:
        self.sampler = Sampler()


def metadata(drafts: list[int]) -> SimpleNamespace:
    """Of requests with so many drafted tokens each, whose last rows are the bonuses'."""
    ends = torch.tensor([count + 1 for count in drafts]).cumsum(0)
    return SimpleNamespace(max_spec_len=max(drafts), bonus_logits_indices=ends - 1)


@pytest.fixture(autouse=True)
def vllms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM as it is, again after each test."""
    monkeypatch.setattr(EngineCore, "post_step", EngineCore.post_step)
    monkeypatch.setattr(rejection_sampler.RejectionSampler, "forward", rejection_sampler.RejectionSampler.forward)


def test_a_step_without_drafts_is_sampled_row_by_row() -> None:
    shortcuts.sample_plainly()
    verifier = Verifier()
    logits = torch.rand(3, VOCABULARY)
    forward = rejection_sampler.RejectionSampler.forward
    assert forward(verifier, metadata([0, 0, 0]), None, logits, None) == "sampled"
    assert torch.equal(verifier.sampler.asked[0], logits)


def test_a_step_with_a_draft_is_verified_by_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_verify", lambda *_: "verified")
    shortcuts.sample_plainly()
    verifier = Verifier()
    forward = rejection_sampler.RejectionSampler.forward
    assert forward(verifier, metadata([0, 1]), None, torch.rand(3, VOCABULARY), None) == "verified"
    assert verifier.sampler.asked == []


def test_an_engine_asks_its_worker_for_no_proposals() -> None:
    class Core:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"{name} is asked for")

    shortcuts.propose_nothing()
    EngineCore.post_step(Core(), model_executed=True)
