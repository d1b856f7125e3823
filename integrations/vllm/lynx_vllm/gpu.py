"""A worker whose KV is on a GPU: the staging pool beside it, and PyTorch's streams and arrays for the copies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from .channel import Sender
from .cuda import Driver, Memory
from .gpu_copying import GpuCopier, Mark, Numbers
from .layout import Layout, LayoutError
from .options import Options
from .pools import Exported, gpu_bytes
from .staging import BLOCK_TOKENS, Geometry


class _Array:
    """Memory of a GPU, for PyTorch to make an array of."""

    def __init__(self, memory: Memory, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = memory.array(shape)


class _Stream:
    """See `gpu_copying.Device`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def index(self, numbers: Numbers) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._device)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def mark(self) -> Mark:
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def host(self, array: torch.Tensor) -> npt.NDArray[np.int16]:
        return array.cpu().numpy()


class GpuWorker:
    """vLLM's blocks on a GPU, and the staging pool there."""

    def __init__(
        self, options: Options, geometry: Geometry, block_tokens: int, caches: list[torch.Tensor], layout: Layout
    ) -> None:
        if not layout.is_plain():
            raise LayoutError(
                "vLLM's blocks on this GPU aren't [head][token][K, then V]: this attention backend can't be used with Lynx"
            )
        self._geometry = geometry
        self._block_tokens = block_tokens
        self._caches = [cache.view(torch.int16) for cache in caches]
        self._device = caches[0].device
        driver = Driver(self._device.index or 0)
        self._memory = driver.allocate(gpu_bytes(geometry, options.staging_blocks))
        shape = (options.staging_blocks, geometry.layers, BLOCK_TOKENS, geometry.kv_heads, 2 * geometry.head_dim)
        self._pool = torch.as_tensor(_Array(self._memory, shape), device=self._device)
        self.exported = Exported(os.getpid(), self._memory.descriptor, driver.uuid(), self._memory.size)

    def copier(self, sender: Sender) -> GpuCopier:
        """What copies between the two."""
        device = _Stream(self._device)
        return GpuCopier(self._geometry, self._block_tokens, self._caches, self._pool, device, sender)
