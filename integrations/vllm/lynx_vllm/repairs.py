"""What this release of vLLM does wrongly on CPUs and verification depends on, looked for and put right.

Where not all requests of a step are greedy, vLLM gives each speculative row its request's temperature, top-k and top-p by a
function that, on CPUs, writes to a copy: the rows get whatever was in that memory, and greedy drafts beside a sampled
request are verified against nonsense. A build that does it right is left alone.
"""

from __future__ import annotations

import logging

import torch
from vllm.v1.sample import rejection_sampler

log = logging.getLogger(__name__)


def expand(
    values: torch.Tensor, ends: torch.Tensor, rows: int, replace_from: float = 0, replace_to: float = 0
) -> torch.Tensor:
    """Each request's value for each of its rows; `ends` are the requests' last rows, plus one."""
    counts = torch.diff(ends.to(torch.int64), prepend=torch.zeros(1, dtype=torch.int64))
    chosen = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    return torch.repeat_interleave(chosen, counts, output_size=rows)


def is_right() -> bool:
    """Whether vLLM's own function does this."""
    values, ends = torch.tensor([0.0, 0.5]), torch.tensor([2, 3], dtype=torch.int32)
    found = rejection_sampler.expand_batch_to_tokens(values, ends, 3, replace_from=0, replace_to=1)
    return torch.equal(found, expand(values, ends, 3, 0, 1))


def repair() -> None:
    """Puts it right in this process."""
    if not is_right():
        rejection_sampler.expand_batch_to_tokens = expand
        log.info("vLLM's expand_batch_to_tokens is wrong on this platform: replaced")
