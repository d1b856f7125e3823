"""Copies as on a GPU, on arrays of NumPy's and streams that a test moves on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from doubles import Processor

from lynx_vllm.channel import Event, What
from lynx_vllm.gpu_copying import GpuCopier, rows
from lynx_vllm.messages import Load, Step, Store
from lynx_vllm.prefill import Save
from lynx_vllm.staging import Geometry

GEOMETRY = Geometry(layers=2, kv_heads=3, head_dim=16)
BLOCKS, POOL_BLOCKS, TOKENS = 40, 8, 200
#: The staging blocks of a prompt of so many tokens.
STAGING = (5, 0, 7, 2)


class Sender:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def said(self) -> list[tuple[What, int, int, int]]:
        return [(event.what, event.layer, event.first, event.end) for event in self.events]


class World:
    """vLLM's blocks of 32 tokens, in rows of `row_tokens`, and a staging pool."""

    def __init__(self, row_tokens: int, block_tokens: int = 32) -> None:
        random = np.random.default_rng(3)
        row_count = BLOCKS * block_tokens // row_tokens
        shape = (row_count, GEOMETRY.kv_heads, row_tokens, 2 * GEOMETRY.head_dim)
        self.caches = [random.integers(-(1 << 15), 1 << 15, shape, dtype=np.int16) for _ in range(GEOMETRY.layers)]
        token = (GEOMETRY.kv_heads, 2 * GEOMETRY.head_dim)
        self.pool = np.zeros((POOL_BLOCKS, GEOMETRY.layers, 64, *token), dtype=np.int16)
        self.table = tuple(int(block) for block in random.permutation(BLOCKS)[: -(-TOKENS // block_tokens)])
        self.row_tokens, self.block_tokens = row_tokens, block_tokens
        self.device, self.sender = Processor(), Sender()
        self.copier = GpuCopier(GEOMETRY, block_tokens, self.caches, self.pool, self.device, self.sender, lambda: 1)

    def native(self, layer: int, token: int) -> Any:
        """A token's K and V in vLLM's blocks: [head][K, then V]."""
        position = self.table[token // self.block_tokens] * self.block_tokens + token % self.block_tokens
        return self.caches[layer][position // self.row_tokens, :, position % self.row_tokens]

    def staged(self, layer: int, token: int) -> Any:
        return self.pool[STAGING[token // 64], layer, token % 64]

    def store(self, first: int, early: int, end: int) -> Store:
        return Store(Save(9, STAGING, first, early, end), self.table, end == TOKENS)


@pytest.mark.parametrize("row_tokens", [16, 32])
def test_tokens_are_copied_to_the_staging_pool_and_no_others(row_tokens: int) -> None:
    world = World(row_tokens)
    world.copier.begin(Step(stores=[world.store(64, 70, 150)]))
    for layer in range(GEOMETRY.layers):
        world.copier.layer_done(layer)
    world.copier.finish()
    for layer in range(GEOMETRY.layers):
        for token in range(TOKENS):
            wanted = world.native(layer, token) if 64 <= token < 150 else 0
            assert np.array_equal(world.staged(layer, token), np.broadcast_to(wanted, (3, 32)))
    assert not world.pool[[1, 3, 4, 6]].any()
    assert not world.pool[STAGING[3]].any()


@pytest.mark.parametrize("row_tokens", [16, 32])
def test_tokens_are_copied_from_it_before_the_step_and_no_others(row_tokens: int) -> None:
    world = World(row_tokens)
    world.pool[:] = np.random.default_rng(4).integers(-(1 << 15), 1 << 15, world.pool.shape, dtype=np.int16)
    before = [cache.copy() for cache in world.caches]
    world.copier.begin(Step(loads=[Load(STAGING, world.table, 64, 198, is_exact=True)]))
    count = 0
    for layer, cache in enumerate(world.caches):
        for token in range(64, 198):
            assert np.array_equal(world.native(layer, token), world.staged(layer, token))
        count += int((cache != before[layer]).any(axis=(1, 3)).sum())
    assert count == (198 - 64) * GEOMETRY.layers


def test_a_layer_is_told_of_when_its_copy_is_there_and_in_order() -> None:
    world = World(32)
    world.copier.begin(Step(stores=[world.store(0, 40, 200)]))
    world.copier.layer_done(0)
    assert world.sender.said() == []
    for mark in world.device.marks:
        mark.has_come = True
    world.copier.layer_done(1)
    cached, first = (What.CACHED, 0, 0, 40), (What.SAVED, 0, 40, 200)
    assert world.sender.said() == [cached, first]
    world.copier.finish()
    assert world.sender.said() == [cached, first, (What.SAVED, 1, 40, 200)]
    assert all(mark.has_come for mark in world.device.marks)


def test_layers_that_nobody_speaks_of_are_copied_at_the_steps_end() -> None:
    world = World(32)
    world.copier.begin(Step(stores=[world.store(0, 0, 200)]))
    world.copier.layer_done(1)
    world.copier.finish()
    assert [event.layer for event in world.sender.events] == [1, 0]
    for layer in range(GEOMETRY.layers):
        assert np.array_equal(world.staged(layer, 199), world.native(layer, 199))
    world.copier.begin(Step())
    world.copier.finish()
    assert len(world.sender.events) == 2


def test_a_block_of_several_rows_is_found_in_them() -> None:
    row, within = rows(range(30, 70), [4, 1, 9], block_tokens=32, row_tokens=16)
    assert (row[0], within[0]) == (4 * 2 + 1, 14)
    assert (row[2], within[2]) == (1 * 2, 0)
    assert (row[-1], within[-1]) == (9 * 2, 5)
