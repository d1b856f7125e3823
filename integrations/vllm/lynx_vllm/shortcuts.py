"""What vLLM does at each step of a server that speculates, for drafts that its proposer might have made: Lynx's makes none, and
most steps verify nothing. On a CPU the two cost a plain request some 4 % of its time.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine.core import EngineCore
from vllm.v1.sample.rejection_sampler import RejectionSampler


def propose_nothing() -> None:
    """Has this process's engine ask its worker for no proposals after a step, which is a message there and back."""
    EngineCore.post_step = _nothing_was_proposed


def sample_plainly() -> None:
    """Has this process's worker sample a step that verifies nothing as a server does that never speculates."""
    if RejectionSampler.forward is not _forward:
        RejectionSampler.forward = _forward


def _nothing_was_proposed(engine: EngineCore, model_executed: bool) -> None:
    pass


_verify = RejectionSampler.forward


def _forward(
    sampler: RejectionSampler, metadata: Any, draft_probs: Any, logits: Any, sampling_metadata: Any, **more: Any
) -> Any:
    if metadata.max_spec_len == 0:
        return sampler.sampler(logits=logits[metadata.bonus_logits_indices], sampling_metadata=sampling_metadata)
    return _verify(sampler, metadata, draft_probs, logits, sampling_metadata, **more)
