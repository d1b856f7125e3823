"""The pool's file, and whose its blocks are."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from lynx_vllm.staging import Blocks, Geometry, PoolFile, map_pool

GEOMETRY = Geometry(layers=2, kv_heads=3, head_dim=16)


def test_a_pool_has_its_size_all_of_it_allocated_and_goes_with_its_owner(folder: Path) -> None:
    pool = PoolFile(folder, GEOMETRY, 4)
    status = pool.path.stat()
    assert status.st_size == 4 * GEOMETRY.block_stride == 4 * 2 * 3 * 2 * 16 * 64 * 2
    assert status.st_blocks * 512 >= status.st_size
    assert status.st_mode & 0o777 == 0o660
    pool.close()
    assert not pool.path.exists()


def test_what_one_process_writes_another_reads(folder: Path) -> None:
    pool = PoolFile(folder, GEOMETRY, 4)
    ours, theirs = (map_pool(pool.path, GEOMETRY, 4) for _ in range(2))
    ours[3, 1, 2, 1, -1] = 0x1234
    assert theirs[3, 1, 2, 1, -1] == 0x1234
    assert pool.path.read_bytes()[-2:] == b"\x34\x12"
    pool.close()


def test_pools_that_nobody_lives_in_are_removed_and_nothing_else(folder: Path) -> None:
    for name in ("kv-17", "kv-notes", "agent.yaml"):
        (folder / name).touch()
    first = PoolFile(folder, GEOMETRY, 1)
    left = sorted(os.listdir(folder))
    assert left == sorted([first.name, "agent.yaml", "kv-notes"])
    first.close()


def test_a_folder_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        PoolFile(folder / "none", GEOMETRY, 1)


def test_no_block_is_two_requests_whatever_comes_and_goes() -> None:
    seed = 11
    chance = random.Random(seed)
    blocks, held = Blocks(20), []
    for step in range(2000):
        if chance.random() < 0.5:
            count = chance.randrange(0, 8)
            taken = blocks.take(count)
            free = 20 - sum(map(len, held))
            assert (taken is None) == (count > free), (seed, step)
            if taken is not None:
                held.append(taken)
        elif held:
            one = held.pop(chance.randrange(len(held)))
            blocks.give_back(one)
            assert one == []
        everybody = [block for one in held for block in one]
        assert len(set(everybody)) == len(everybody) == 20 - blocks.free, (seed, step)
