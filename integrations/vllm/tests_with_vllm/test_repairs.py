"""What this release of vLLM does wrongly on CPUs, as it is installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from vllm.platforms import current_platform
from vllm.v1.sample import rejection_sampler

from lynx_vllm import repairs

#: Temperatures of three requests with one row, none and four; 0 is greedy, which is handed on as 1.
TEMPERATURES = torch.tensor([0.5, 0.7, 0.0])
ENDS = torch.tensor([1, 1, 5], dtype=torch.int32)
ROWS = torch.tensor([0.5, 1.0, 1.0, 1.0, 1.0])


@pytest.fixture(autouse=True)
def vllms_own() -> Callable[..., torch.Tensor]:
    """The function as vLLM has it, again after each test."""
    own = rejection_sampler.expand_batch_to_tokens
    yield own
    rejection_sampler.expand_batch_to_tokens = own


def test_each_row_gets_its_requests_value() -> None:
    assert torch.equal(repairs.expand(TEMPERATURES, ENDS, 5, 0, 1), ROWS)
    limits = torch.tensor([7, 8, 9], dtype=torch.int32)
    rows = repairs.expand(limits, ENDS, 5)
    assert rows.dtype == limits.dtype
    assert rows.tolist() == [7, 9, 9, 9, 9]


def test_a_function_that_is_wrong_is_replaced_by_one_that_is_right() -> None:
    rejection_sampler.expand_batch_to_tokens = lambda values, ends, rows, **_: torch.full((rows,), 0.25)
    assert not repairs.is_right()
    repairs.repair()
    assert repairs.is_right()
    found = rejection_sampler.expand_batch_to_tokens(TEMPERATURES, ENDS, 5, replace_from=0, replace_to=1)
    assert torch.equal(found, ROWS)


def test_a_function_that_is_right_is_left_alone() -> None:
    def right(*arguments: object, **named: object) -> torch.Tensor:
        return repairs.expand(*arguments, **named)

    rejection_sampler.expand_batch_to_tokens = right
    repairs.repair()
    assert rejection_sampler.expand_batch_to_tokens is right


def test_this_release_is_wrong_on_cpus_so_that_the_repair_has_a_reason() -> None:
    # As a worker does at its start.
    current_platform.import_kernels()
    current_platform.register_triton_kernel_overrides()
    assert not repairs.is_right()
