"""What a prefill engine's prefix cache has, as its agent is told: decode agents choose by it where to send a prompt.

vLLM says which of its blocks are hashed and which are gone. The agent wants blocks of 64 tokens, each after its parent. One of
vLLM's may be several of those, or several of vLLM's one. What can't be told, or is told late, costs time only.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .api import engine_pb2 as api
from .staging import BLOCK_TOKENS

#: How many blocks one message tells of.
MESSAGE = 1000


@dataclass
class Block:
    """One of vLLM's blocks, in the chain from a prompt's beginning."""

    #: What the chain has in front of it that is no whole block of the agent's yet.
    pending: tuple[int, ...]
    #: vLLM's blocks whose tokens these are.
    holders: tuple[Hashable, ...]
    #: The agent's last whole block so far; 0 where there is none.
    last: int
    #: The agent's blocks that have tokens of this one.
    numbers: list[int] = field(default_factory=list)


class Cached:
    """All that is cached."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._say: Callable[[api.FromEngine], None] | None = None
        self._numbers = itertools.count(1)
        self._blocks: dict[Hashable, Block] = {}
        #: In the order in which they came, so that parents come first.
        self._told: dict[int, api.CachedBlock] = {}

    def attached(self, say: Callable[[api.FromEngine], None]) -> None:
        """An agent is there: it is told everything."""
        with self._lock:
            self._say = say
            self._tell(list(self._told.values()), [], is_new=True)

    def lost(self) -> None:
        """It is gone."""
        with self._lock:
            self._say = None

    def stored(self, hashes: Sequence[Hashable], parent: Hashable | None, tokens: Sequence[int], size: int) -> None:
        """These blocks of so many tokens are there now, one behind the other. Nothing is told of a chain whose beginning isn't
        known, nor of one of blocks that neither divide the agent's nor are divided by them."""
        if size % BLOCK_TOKENS and BLOCK_TOKENS % size:
            return
        with self._lock:
            added: list[api.CachedBlock] = []
            before = Block((), (), 0) if parent is None else self._blocks.get(parent)
            for place, name in enumerate(hashes):
                if before is None:
                    break
                known = self._blocks.get(name)
                before = known or self._add(name, before, tokens[place * size : (place + 1) * size], added)
            self._tell(added, [])

    def removed(self, hashes: Iterable[Hashable]) -> None:
        """These are gone."""
        with self._lock:
            gone = []
            for name in hashes:
                block = self._blocks.pop(name, None)
                for number in () if block is None else block.numbers:
                    if self._told.pop(number, None) is not None:
                        gone.append(number)
            self._tell([], gone)

    def cleared(self) -> None:
        """All of them are gone."""
        with self._lock:
            self._blocks.clear()
            self._told.clear()
            self._tell([], [], is_new=True)

    def _add(
        self, name: Hashable, before: Block, tokens: Sequence[int], added: list[api.CachedBlock]
    ) -> Block:
        pending, holders, last = (*before.pending, *tokens), (*before.holders, name), before.last
        block = Block((), (), last)
        self._blocks[name] = block
        while len(pending) >= BLOCK_TOKENS:
            number = next(self._numbers)
            one = api.CachedBlock(block=number, parent=last, tokens=pending[:BLOCK_TOKENS])
            self._told[number] = one
            added.append(one)
            for holder in holders:
                if holder in self._blocks:
                    self._blocks[holder].numbers.append(number)
            pending, last = pending[BLOCK_TOKENS:], number
        block.pending, block.holders, block.last = pending, holders if pending else (), last
        return block

    def _tell(self, added: list[api.CachedBlock], removed: list[int], *, is_new: bool = False) -> None:
        if self._say is None:
            return
        for some in _pieces(added, removed):
            self._say(api.FromEngine(cached_blocks=api.CachedBlocks(reset=is_new, added=some[0], removed=some[1])))
            is_new = False
        if is_new:
            self._say(api.FromEngine(cached_blocks=api.CachedBlocks(reset=True)))


def _pieces(
    added: list[api.CachedBlock], removed: list[int]
) -> Iterator[tuple[list[api.CachedBlock], list[int]]]:
    for start in range(0, len(added), MESSAGE):
        yield added[start : start + MESSAGE], []
    for start in range(0, len(removed), MESSAGE):
        yield [], removed[start : start + MESSAGE]
