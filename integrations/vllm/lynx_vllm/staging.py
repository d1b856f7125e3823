"""The staging pool: a file in memory that the agent maps too, in the one layout that agents take.

KV never lies in vLLM's own tensors as far as the agent knows. It is copied here on its way out, and from here on its way
in. vLLM's layouts differ with the processor, the attention backend and the block size, and two nodes may differ in them;
and since no forward pass reads what lies here, the agent may write whenever it likes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: Tokens of a block.
BLOCK_TOKENS = 64
#: Bytes of an element: BF16 is the only one.
ELEMENT_BYTES = 2
#: Tokens at the end of a prompt that a decode engine computes itself. The last one gives the first logits; with one alone,
#: vLLM would fill the step up with as many empty rows as it can verify at once.
RECOMPUTED = 2

Elements = npt.NDArray[np.uint16]


def blocks_of(tokens: int) -> int:
    """How many blocks so many tokens take."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(frozen=True)
class Geometry:
    """The shape of a model's KV. In a block come layers, in a layer heads, in a head K as [channel][token], then V as
    [token][channel], without gaps."""

    layers: int
    kv_heads: int
    head_dim: int

    @property
    def tile(self) -> int:
        """Elements of one head's K, or V, in one block."""
        return self.head_dim * BLOCK_TOKENS

    @property
    def v_offset(self) -> int:
        """Bytes from a head's K to its V."""
        return self.tile * ELEMENT_BYTES

    @property
    def head_stride(self) -> int:
        """Bytes of a head."""
        return 2 * self.v_offset

    @property
    def layer_stride(self) -> int:
        """Bytes of a layer."""
        return self.kv_heads * self.head_stride

    @property
    def block_stride(self) -> int:
        """Bytes of a block."""
        return self.layers * self.layer_stride

    def elements(self, memory: memoryview | mmap.mmap, blocks: int) -> Elements:
        """The pool as [block][layer][head][K or V][element]."""
        shape = (blocks, self.layers, self.kv_heads, 2, self.tile)
        return np.frombuffer(memory, dtype=np.uint16, count=blocks * self.block_stride // ELEMENT_BYTES).reshape(shape)


class PoolFile:
    """A new file of full size, all of it allocated, removed when it is closed."""

    def __init__(self, folder: Path, geometry: Geometry, blocks: int) -> None:
        remove_stale(folder)
        self.name = f"kv-{os.getpid()}"
        self.path = folder / self.name
        self.geometry = geometry
        self.blocks = blocks
        # Never one that is there already: whoever still maps that one writes into what nobody reads.
        self.path.unlink(missing_ok=True)
        # Agent and engine may be two users of one group; nobody else is to read KV.
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o660)
        try:
            os.fchmod(self._file, 0o660)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            os.posix_fallocate(self._file, 0, blocks * geometry.block_stride)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Removes the file. Who maps it keeps what is mapped."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self.path.unlink(missing_ok=True)


def remove_stale(folder: Path) -> None:
    """Removes pools of engines that were killed: a living one holds its file's lock."""
    for path in folder.glob("kv-*"):
        if not path.name.removeprefix("kv-").isdigit():
            continue
        try:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except OSError:
            continue


def map_pool(path: Path, geometry: Geometry, blocks: int) -> Elements:
    """Maps a pool that another process has made."""
    with path.open("r+b") as file:
        return geometry.elements(mmap.mmap(file.fileno(), blocks * geometry.block_stride), blocks)


class Blocks:
    """Which blocks of a pool are nobody's. Those that are given back wait longest."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = deque(range(count))

    @property
    def free(self) -> int:
        """How many nobody has."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """So many blocks, or none at all."""
        if count > len(self._free):
            return None
        return [self._free.popleft() for _ in range(count)]

    def give_back(self, blocks: list[int]) -> None:
        """Takes back what was taken; empties the list, so that nothing is given back twice."""
        self._free.extend(blocks)
        blocks.clear()
