"""A worker's copies on a GPU between vLLM's blocks and the staging pool, both in the GPU's memory.

What vLLM has written is copied on a stream of its own, behind the kernels that write it and beside those that follow. What it
is to read is copied on vLLM's stream, before the step. Arrays are PyTorch's here; of them only what NumPy's can do as well is
used, and the tests have those.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .channel import Event, Sender, What
from .messages import Load, Step, Store
from .staging import BLOCK_TOKENS, RECOMPUTED, Geometry

log = logging.getLogger(__name__)

Numbers = npt.NDArray[np.int64]


class Mark(Protocol):
    """A moment in a stream, as PyTorch's events are."""

    def query(self) -> bool:
        """Whether it has come."""

    def synchronize(self) -> None:
        """Waits for it."""


class Device(Protocol):
    """A GPU, and a stream for copies."""

    def index(self, numbers: Numbers) -> Any:
        """Numbers by which arrays there are indexed."""

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """What is launched within goes on the stream for copies, behind all that vLLM has launched so far."""

    def mark(self) -> Mark:
        """The end of what was launched on it so far."""

    def host(self, array: Any) -> npt.NDArray[np.int16]:
        """An array's values."""


def rows(tokens: range, blocks: Sequence[int], block_tokens: int, row_tokens: int) -> tuple[Numbers, Numbers]:
    """In which row of an array each token lies, and where in it, if a block is as many rows as it takes."""
    numbers = np.arange(tokens.start, tokens.stop, dtype=np.int64)
    block = np.asarray(blocks, dtype=np.int64)[numbers // block_tokens]
    within = numbers % block_tokens
    return block * (block_tokens // row_tokens) + within // row_tokens, within % row_tokens


@dataclass
class Pending:
    """Copies that were launched, and what to tell once they are there."""

    mark: Mark
    events: list[Event]


class GpuCopier:
    """Copies for one step after another."""

    def __init__(
        self,
        geometry: Geometry,
        block_tokens: int,
        caches: Sequence[Any],
        pool: Any,
        device: Device,
        sender: Sender,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._geometry = geometry
        self._block_tokens = block_tokens
        #: vLLM's, of each layer: [row][head][token][K, then V], a block being one row or several.
        self._caches = caches
        #: [block][layer][token][head][K, then V].
        self._pool = pool
        self._device = device
        self._sender = sender
        self._now = now
        self._step = Step()
        self._saved: set[int] = set()
        self._pending: list[Pending] = []
        self._began = 0

    def begin(self, step: Step) -> None:
        """A step is about to begin: launches the copies that it needs, and those of what was there before it."""
        self._step = step
        self._saved.clear()
        self._began = self._now()
        for load in step.loads:
            self._load(load)
        early = [store for store in step.stores if store.save.first < store.save.early]
        if early:
            with self._device.aside():
                for store in early:
                    for layer in range(self._geometry.layers):
                        self._save(store, layer, range(store.save.first, store.save.early))
            self._tell_later([Event(What.CACHED, store.save.key, end=store.save.early) for store in early])

    def layer_done(self, layer: int) -> None:
        """A step has launched what writes a layer's keys and values."""
        if not self._step.stores or layer in self._saved:
            return
        self._saved.add(layer)
        with self._device.aside():
            for store in self._step.stores:
                if store.save.early < store.save.end:
                    self._save(store, layer, range(store.save.early, store.save.end))
        saves = [store.save for store in self._step.stores]
        self._tell_later([Event(What.SAVED, save.key, layer, save.early, save.end) for save in saves])
        while self._pending and self._pending[0].mark.query():
            self._tell(self._pending.pop(0))

    def finish(self) -> None:
        """The step is launched: waits for its copies, and tells of each as it is there. Then vLLM may do as it likes with its
        blocks. Layers that nobody has spoken of, as within a CUDA graph, are copied now."""
        for layer in range(self._geometry.layers):
            self.layer_done(layer)
        for pending in self._pending:
            pending.mark.synchronize()
            self._tell(pending)
        self._pending.clear()
        for store in self._step.stores:
            if store.name:
                save = store.save
                digest = self._digest(store.blocks, range(save.end - RECOMPUTED)) if store.is_last else "more to come"
                took = (self._now() - self._began) / 1e6
                log.info("lynx saved %s from %d to %d in %.3f ms: %s", store.name, save.first, save.end, took, digest)
        self._step = Step()

    def _tell_later(self, events: list[Event]) -> None:
        self._pending.append(Pending(self._device.mark(), events))

    def _tell(self, pending: Pending) -> None:
        began, ended = self._began, self._now()
        for event in pending.events:
            self._sender.tell(Event(event.what, event.request, event.layer, event.first, event.end, began, ended))
        self._began = ended

    def _staged(self, tokens: range, staging: Sequence[int]) -> tuple[Any, Any]:
        block, within = rows(tokens, staging, BLOCK_TOKENS, BLOCK_TOKENS)
        return self._device.index(block), self._device.index(within)

    def _native(self, tokens: range, blocks: Sequence[int]) -> tuple[Any, Any]:
        row, within = rows(tokens, blocks, self._block_tokens, self._caches[0].shape[2])
        return self._device.index(row), self._device.index(within)

    def _save(self, store: Store, layer: int, tokens: range) -> None:
        row, within = self._native(tokens, store.blocks)
        block, place = self._staged(tokens, store.save.staging)
        self._pool[block, layer, place] = self._caches[layer][row, :, within]

    def _load(self, load: Load) -> None:
        tokens = range(load.first, load.end)
        row, within = self._native(tokens, load.blocks)
        block, place = self._staged(tokens, load.staging)
        for layer, cache in enumerate(self._caches):
            cache[row, :, within] = self._pool[block, layer, place]
        if load.name:
            digest = self._digest(load.blocks, range(load.end)) if load.is_exact else "an anchor"
            took = (self._now() - self._began) / 1e6
            log.info("lynx loaded %s from %d to %d in %.3f ms: %s", load.name, load.first, load.end, took, digest)

    def _digest(self, blocks: Sequence[int], tokens: range) -> str:
        """A hash of what vLLM's blocks hold for these tokens."""
        hasher = hashlib.blake2b(digest_size=16)
        row, within = self._native(tokens, blocks)
        for cache in self._caches:
            hasher.update(self._device.host(cache[row, :, within]).tobytes())
        return hasher.hexdigest()
