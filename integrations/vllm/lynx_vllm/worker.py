"""The worker's side: vLLM's blocks, as the copies see them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention

from .channel import Sender, path_of
from .copying import Copier
from .gpu import GpuWorker
from .layout import Layout, LayoutError, measure
from .messages import Step
from .options import Options
from .pools import Exported
from .repairs import repair
from .shortcuts import compute_plainly
from .staging import BLOCK_TOKENS, Elements, Geometry

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class Copies(Protocol):
    """What copies for one step after another."""

    def begin(self, step: Step) -> None:
        """A step is about to begin."""

    def layer_done(self, layer: int) -> None:
        """A step has written a layer's keys and values."""

    def finish(self) -> None:
        """The step's layers are over."""


class Worker:
    """What the worker's process does."""

    def __init__(self, vllm_config: VllmConfig, options: Options, geometry: Geometry) -> None:
        self._config = vllm_config
        self._options = options
        self._geometry = geometry
        self._sender = Sender(path_of(options.shared_directory, vllm_config.kv_transfer_config.engine_id))
        self._layers: dict[str, int] = {}
        self._copies: Copies | None = None
        #: The staging pool, where it is on a GPU and so this process's.
        self.exported: Exported | None = None

    def register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Takes vLLM's blocks, and finds out what lies where in one. By now vLLM has loaded its own operations."""
        compute_plainly()
        names = sorted(kv_caches, key=layer_number)
        if len(names) != self._geometry.layers:
            raise LayoutError(f"vLLM has {len(names)} layers of KV and its configuration {self._geometry.layers}")
        self._layers = {name: number for number, name in enumerate(names)}
        caches = [kv_caches[name] for name in names]
        kind = caches[0].device.type
        if kind == "cpu":
            self._on_cpu(names[0], caches)
        elif kind == "cuda":
            self._on_gpu(names[0], caches)
        else:
            raise LayoutError(f"vLLM's KV is on {kind}: lynx-vllm copies KV in a CPU's memory, or in an NVIDIA GPU's")

    def begin(self, step: Step) -> None:
        """A step is about to begin."""
        if self._copies is not None:
            self._copies.begin(step)

    def layer_done(self, name: str) -> None:
        """A step has written a layer's keys and values."""
        if self._copies is not None:
            self._copies.layer_done(self._layers[name])

    def finish(self) -> None:
        """A step's layers are over."""
        if self._copies is not None:
            self._copies.finish()

    def _on_cpu(self, name: str, caches: list[torch.Tensor]) -> None:
        repair()
        layout = self._measure(name, caches[0], BLOCK_TOKENS)
        blocks = [elements(cache) for cache in caches]
        self._copies = Copier(self._options.shared_directory, self._geometry, layout, blocks, self._sender)

    def _on_gpu(self, name: str, caches: list[torch.Tensor]) -> None:
        layout = self._measure(name, caches[0], caches[0].shape[2])
        gpu = GpuWorker(self._options, self._geometry, self._config.cache_config.block_size, caches, layout)
        self.exported = gpu.exported
        self._copies = gpu.copier(self._sender)

    def _measure(self, name: str, cache: torch.Tensor, part_tokens: int) -> Layout:
        layer: Any = get_layers_from_vllm_config(self._config, Attention, [name])[name]
        # Two blocks, of which the second is written: a block's start is measured too.
        scratch = torch.zeros((2, *cache.shape[1:]), dtype=cache.dtype, device=cache.device)
        block_tokens = int(cache.shape[2])
        slots = torch.arange(block_tokens, 2 * block_tokens, dtype=torch.int64, device=cache.device)

        def store(keys: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            scratch.zero_()
            k, v = (torch.from_numpy(part).to(cache.device, cache.dtype) for part in (keys, values))
            layer.impl.do_kv_cache_update(layer, k, v, scratch, slots)
            if scratch[0].any():
                raise LayoutError("vLLM writes outside of the block that it is told: Lynx can't copy its blocks")
            return scratch[1].flatten().to(torch.int64).cpu().numpy()

        return measure(store, block_tokens, self._geometry.kv_heads, self._geometry.head_dim, part_tokens)


def layer_number(name: str) -> int:
    """The number in a layer's name, as in "model.layers.3.self_attn.attn"."""
    numbers = re.findall(r"\d+", name)
    if len(numbers) != 1:
        raise LayoutError(f"which layer {name!r} is can't be told by its name")
    return int(numbers[0])


def elements(cache: torch.Tensor) -> Elements:
    """A layer's blocks as [block][element], in place."""
    if not cache.is_contiguous():
        raise LayoutError("vLLM's blocks of one layer aren't contiguous: Lynx can't copy them")
    flat = cache.view(torch.int16).numpy().view(np.uint16)
    return flat.reshape(cache.shape[0], -1)
