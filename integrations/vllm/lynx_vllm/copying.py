"""A worker's copies between vLLM's blocks and the staging pool."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from .channel import Event, Sender, What
from .layout import Layout
from .messages import Load, Step, Store
from .staging import BLOCK_TOKENS, RECOMPUTED, Elements, Geometry, map_pool

log = logging.getLogger(__name__)


def pieces(first: int, end: int, block_tokens: int) -> Iterator[tuple[int, int, int, range]]:
    """Cuts tokens at staging blocks: for each piece the staging block, the vLLM block and which part of it, and the tokens
    within that part."""
    while first < end:
        staging = first // BLOCK_TOKENS
        start = staging * BLOCK_TOKENS
        stop = min(end, start + BLOCK_TOKENS)
        yield staging, start // block_tokens, start % block_tokens // BLOCK_TOKENS, range(first - start, stop - start)
        first = stop


class Copier:
    """Copies for one step after another."""

    def __init__(
        self,
        folder: Path,
        geometry: Geometry,
        layout: Layout,
        caches: Sequence[Elements],
        sender: Sender,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        #: vLLM's blocks, of each layer: [block][element].
        self._caches = caches
        self._folder = folder
        self._geometry = geometry
        self._layout = layout
        self._sender = sender
        self._now = now
        self._pool: Elements | None = None
        self._pool_name = ""
        self._step = Step()
        self._layer_began = 0
        #: How long the copies of this step have taken, in nanoseconds.
        self._copied = 0

    def begin(self, step: Step) -> None:
        """A step is about to begin: copies what it needs, and what was there before it."""
        self._step = step
        if not step.loads and not step.stores:
            return
        pool = self._map(step)
        self._copied = 0
        for load in step.loads:
            self._load(load, pool)
        for store in step.stores:
            save = store.save
            if save.first < save.early:
                for layer in range(self._geometry.layers):
                    self._save(store, layer, save.first, save.early, pool)
                self._sender.tell(Event(What.CACHED, save.key, end=save.early))
        self._layer_began = self._now()

    def layer_done(self, layer: int) -> None:
        """A step has written a layer's keys and values."""
        if not self._step.stores:
            return
        pool = self._map(self._step)
        began, ended = self._layer_began, self._now()
        for store in self._step.stores:
            save = store.save
            if save.early < save.end:
                self._save(store, layer, save.early, save.end, pool)
            self._sender.tell(Event(What.SAVED, save.key, layer, save.early, save.end, began, ended))
        self._copied += self._now() - ended
        if layer == self._geometry.layers - 1:
            self._log_stores()
        self._layer_began = self._now()

    def finish(self) -> None:
        """The step's layers are over: each was copied, and told of, when it was done."""

    def _log_stores(self) -> None:
        for store in self._step.stores:
            if store.name:
                save, took = store.save, self._copied / 1e6
                digest = self._digest(store.blocks, range(save.end - RECOMPUTED)) if store.is_last else "more to come"
                log.info("lynx saved %s from %d to %d in %.3f ms: %s", store.name, save.first, save.end, took, digest)

    def _map(self, step: Step) -> Elements:
        if self._pool is None or self._pool_name != step.pool:
            self._pool = map_pool(self._folder / step.pool, self._geometry, step.pool_blocks)
            self._pool_name = step.pool
        return self._pool

    def _save(self, store: Store, layer: int, first: int, end: int, pool: Elements) -> None:
        cache = self._caches[layer]
        for staging, block, part, tokens in pieces(first, end, self._layout.block_tokens):
            staged = pool[store.save.staging[staging], layer]
            self._layout.save(cache[store.blocks[block]], part, staged, tokens)

    def _load(self, load: Load, pool: Elements) -> None:
        began = self._now()
        for staging, block, part, tokens in pieces(load.first, load.end, self._layout.block_tokens):
            for layer, cache in enumerate(self._caches):
                staged = pool[load.staging[staging], layer]
                self._layout.load(staged, cache[load.blocks[block]], part, tokens)
        took = (self._now() - began) / 1e6
        if load.name:
            digest = self._digest(load.blocks, range(load.end)) if load.is_exact else "an anchor"
            log.info("lynx loaded %s from %d to %d in %.3f ms: %s", load.name, load.first, load.end, took, digest)

    def _digest(self, blocks: Sequence[int], tokens: range) -> str:
        """A hash of what vLLM's blocks hold for these tokens."""
        hasher = hashlib.blake2b(digest_size=16)
        shape = (self._geometry.kv_heads, 2, self._geometry.tile)
        for _, block, part, piece in pieces(tokens.start, tokens.stop, self._layout.block_tokens):
            for cache in self._caches:
                tile = np.zeros(shape, dtype=np.uint16)
                self._layout.save(cache[blocks[block]], part, tile, piece)
                hasher.update(tile.tobytes())
        return hasher.hexdigest()
