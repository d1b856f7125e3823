"""Where elements lie is found out, whatever the order, and copies go both ways."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lynx_vllm.copying import pieces
from lynx_vllm.layout import LayoutError, Store, measure
from lynx_vllm.staging import BLOCK_TOKENS

HEADS, DIM, TOKENS = 3, 8, 128
SIZE = TOKENS * HEADS * DIM


def shuffled(seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places of K's and V's elements [token][head][channel] in a block, in no order at all."""
    order = np.random.default_rng(seed).permutation(2 * SIZE)
    shape = (TOKENS, HEADS, DIM)
    return order[:SIZE].reshape(shape), order[SIZE:].reshape(shape)


def store_at(keys_at: npt.NDArray[np.int64], values_at: npt.NDArray[np.int64]) -> Store:
    def store(keys: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        block = np.zeros(2 * SIZE, dtype=np.int64)
        block[keys_at] = keys
        block[values_at] = values
        return block

    return store


def test_a_block_in_any_order_is_copied_to_staging_and_back() -> None:
    random = np.random.default_rng(7)
    keys_at, values_at = shuffled(1)
    layout = measure(store_at(keys_at, values_at), TOKENS, HEADS, DIM)
    block = random.integers(0, 1 << 16, 2 * SIZE, dtype=np.uint16)
    back = np.zeros_like(block)
    for part in range(TOKENS // BLOCK_TOKENS):
        staged = np.zeros((HEADS, 2, DIM * BLOCK_TOKENS), dtype=np.uint16)
        layout.save(block, part, staged, range(BLOCK_TOKENS))
        tokens = slice(part * BLOCK_TOKENS, (part + 1) * BLOCK_TOKENS)
        # K as [channel][token], V as [token][channel].
        assert np.array_equal(staged[:, 0].reshape(HEADS, DIM, -1), block[keys_at[tokens]].transpose(1, 2, 0))
        assert np.array_equal(staged[:, 1].reshape(HEADS, -1, DIM), block[values_at[tokens]].transpose(1, 0, 2))
        layout.load(staged, back, part, range(BLOCK_TOKENS))
    assert np.array_equal(back, block)


@pytest.mark.parametrize("tokens", [range(0, 1), range(5, 64), range(63, 64), range(17, 40)])
def test_some_tokens_of_a_block_leave_the_others_alone(tokens: range) -> None:
    keys_at, values_at = shuffled(2)
    layout = measure(store_at(keys_at, values_at), TOKENS, HEADS, DIM)
    block = np.random.default_rng(3).integers(1, 1 << 16, 2 * SIZE, dtype=np.uint16)
    whole, some = (np.zeros((HEADS, 2, DIM * BLOCK_TOKENS), dtype=np.uint16) for _ in range(2))
    layout.save(block, 1, whole, range(BLOCK_TOKENS))
    layout.save(block, 1, some, tokens)
    among = np.isin(np.arange(BLOCK_TOKENS), tokens)
    keys, values = some[:, 0].reshape(HEADS, DIM, -1), some[:, 1].reshape(HEADS, -1, DIM)
    assert np.array_equal(keys, whole[:, 0].reshape(HEADS, DIM, -1) * among)
    assert np.array_equal(values, whole[:, 1].reshape(HEADS, -1, DIM) * among[:, None])
    back = np.zeros_like(block)
    layout.load(some, back, 1, tokens)
    touched = np.concatenate([at[BLOCK_TOKENS:][among].ravel() for at in (keys_at, values_at)])
    assert np.array_equal(np.nonzero(back)[0], np.sort(touched))
    assert np.array_equal(back[touched], block[touched])


def test_a_backend_that_keeps_less_than_it_is_given_is_refused() -> None:
    keys_at, values_at = shuffled(4)
    values_at[0, 0, 0] = keys_at[0, 0, 0]
    with pytest.raises(LayoutError, match="can't be used"):
        measure(store_at(keys_at, values_at), TOKENS, HEADS, DIM)


def test_blocks_that_staging_blocks_do_not_fill_are_refused() -> None:
    keys_at, values_at = shuffled(5)
    with pytest.raises(LayoutError, match="--block-size"):
        measure(store_at(keys_at, values_at), 96, HEADS, DIM)


def test_tokens_are_cut_at_staging_blocks() -> None:
    assert list(pieces(100, 200, 128)) == [(1, 0, 1, range(36, 64)), (2, 1, 0, range(0, 64)), (3, 1, 1, range(0, 8))]
    assert list(pieces(64, 64, 64)) == []


@pytest.mark.parametrize("part_tokens", [TOKENS, BLOCK_TOKENS, 16])
def test_a_block_that_has_heads_then_tokens_then_k_and_v_is_known_as_such(part_tokens: int) -> None:
    order = np.arange(2 * SIZE).reshape(HEADS, TOKENS, 2, DIM).transpose(2, 1, 0, 3)
    assert measure(store_at(order[0], order[1]), TOKENS, HEADS, DIM, part_tokens).is_plain()
    assert not measure(store_at(order[1], order[0]), TOKENS, HEADS, DIM, part_tokens).is_plain()
    tokens_first = np.arange(2 * SIZE).reshape(TOKENS, HEADS, 2, DIM).transpose(2, 0, 1, 3)
    assert not measure(store_at(tokens_first[0], tokens_first[1]), TOKENS, HEADS, DIM, part_tokens).is_plain()
