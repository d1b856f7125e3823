"""Where an element of the KV cache lies in one of vLLM's blocks: measured, not assumed.

The CPU backend packs a block as its matrix instructions want it, and says nowhere how. So numbers are written into a block
of its own by the backend's own way of storing keys and values, and looked for afterwards. BF16 holds 0 to 255 exactly: an
element's number is written a byte at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .staging import BLOCK_TOKENS, Elements

#: Stores keys and values, both [token][head][channel] of small whole numbers, in an empty block, and gives back the block's
#: elements as whole numbers.
Store = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.int64]]

BASE = 256


class LayoutError(RuntimeError):
    """vLLM's blocks aren't what this package can copy."""


@dataclass(frozen=True)
class Layout:
    """How to copy between vLLM's blocks and staging blocks."""

    #: Tokens of a vLLM block.
    block_tokens: int
    head_dim: int
    #: For each staging block's worth of a vLLM block: where the elements of a staging block's layer lie in it.
    places: npt.NDArray[np.intp]

    def save(self, block: Elements, part: int, staged: Elements, tokens: range) -> None:
        """Copies these tokens of a part of a vLLM block, one layer's, into that layer of a staging block.

        `block` are the elements of the vLLM block, `staged` is [head][K or V][element], and `tokens` count within the part.
        """
        places = self.places[part]
        if len(tokens) == BLOCK_TOKENS:
            np.take(block, places, out=staged, mode="clip")
            return
        keys, values = self._columns(tokens)
        for which, chosen in ((0, keys), (1, values)):
            staged[:, which, chosen] = block[places[:, which, chosen]]

    def load(self, staged: Elements, block: Elements, part: int, tokens: range) -> None:
        """Copies these tokens the other way."""
        places = self.places[part]
        if len(tokens) == BLOCK_TOKENS:
            block[places] = staged
            return
        keys, values = self._columns(tokens)
        for which, chosen in ((0, keys), (1, values)):
            block[places[:, which, chosen]] = staged[:, which, chosen]

    def is_plain(self) -> bool:
        """Whether a block's elements, in the order in which they were measured, are [head][token][K, then V]."""
        parts, kv_heads = self.places.shape[:2]
        part_tokens = self.block_tokens // parts
        order = np.arange(self.places.size).reshape(kv_heads, parts, part_tokens, 2, self.head_dim)
        # As measured: K as [channel][token], V as [token][channel].
        keys = order[:, :, :, 0].transpose(1, 0, 3, 2).reshape(parts, kv_heads, -1)
        values = order[:, :, :, 1].transpose(1, 0, 2, 3).reshape(parts, kv_heads, -1)
        return np.array_equal(self.places, np.stack([keys, values], axis=2))

    def _columns(self, tokens: range) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The elements of these tokens in a staging block's K, and in its V."""
        column = np.arange(tokens.start, tokens.stop)
        channel = np.arange(self.head_dim)
        keys = (channel[:, None] * BLOCK_TOKENS + column[None, :]).ravel()
        values = (column[:, None] * self.head_dim + channel[None, :]).ravel()
        return keys, values


def measure(
    store: Store, block_tokens: int, kv_heads: int, head_dim: int, part_tokens: int = BLOCK_TOKENS
) -> Layout:
    """Finds out where the elements of a block lie, of which each part has so many tokens.

    Raises `LayoutError` where an element is lost, or in two places, or where blocks can't be divided into staging blocks.
    """
    if block_tokens % part_tokens:
        raise LayoutError(f"vLLM's blocks have {block_tokens} tokens: set --block-size to a multiple of {part_tokens}")
    shape = (block_tokens, kv_heads, head_dim)
    numbers = np.arange(block_tokens * kv_heads * head_dim, dtype=np.int64).reshape(shape)
    ones = np.ones(shape, dtype=np.int64)
    kinds = store(ones, ones * 2)
    found = np.zeros_like(kinds)
    scale = 1
    while scale < numbers.size:
        digit = numbers // scale % BASE
        found += store(digit, digit) * scale
        scale *= BASE
    keys = _places(kinds, found, 1, numbers.size).reshape(shape)
    values = _places(kinds, found, 2, numbers.size).reshape(shape)
    parts = block_tokens // part_tokens
    split = (parts, part_tokens, kv_heads, head_dim)
    # K as [channel][token], V as [token][channel].
    k_tiles = keys.reshape(split).transpose(0, 2, 3, 1).reshape(parts, kv_heads, 1, -1)
    v_tiles = values.reshape(split).transpose(0, 2, 1, 3).reshape(parts, kv_heads, 1, -1)
    return Layout(block_tokens, head_dim, np.concatenate([k_tiles, v_tiles], axis=2))


def _places(kinds: npt.NDArray[np.int64], found: npt.NDArray[np.int64], kind: int, count: int) -> npt.NDArray[np.intp]:
    """Where in the block each element of K, or of V, lies."""
    places = np.nonzero(kinds == kind)[0]
    numbers = found[places]
    order = np.argsort(numbers)
    if len(places) != count or not np.array_equal(numbers[order], np.arange(count)):
        raise LayoutError(
            f"vLLM keeps {len(places)} elements of {'KV'[kind - 1]} in a block of {count}, not each of them once:"
            " this attention backend can't be used with Lynx"
        )
    return places[order]
