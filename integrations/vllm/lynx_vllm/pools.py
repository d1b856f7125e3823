"""The staging pool as the agent is told of it: a file that both map, or memory of a GPU that both have open."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .api import engine_pb2 as api
from .staging import BLOCK_TOKENS, ELEMENT_BYTES, Geometry, PoolFile

#: Behind the name of the agent's socket: where it takes descriptors.
SUFFIX = ".fds"
#: How long it may take to say that it has one, in seconds.
ANSWER = 10.0


class Pool(Protocol):
    """What agent and worker share."""

    #: What the worker is to map; nothing where it has it already.
    name: str
    blocks: int

    def layout(self) -> api.Layout:
        """Where a token's KV lies in it."""

    def offered(self, agent: Path) -> contextlib.AbstractContextManager[api.Pool]:
        """The pool as `Attach` names it, to the agent of this socket. What that needs of it lasts as long as this. Raises
        `OSError` where no agent is there."""

    def close(self) -> None:
        """The engine is done with it."""


class HostPool:
    """A file in memory."""

    def __init__(self, file: PoolFile) -> None:
        self._file = file
        self.name = file.name
        self.blocks = file.blocks

    def layout(self) -> api.Layout:
        """K as [channel][token], V as [token][channel]."""
        shape = self._file.geometry
        return _layout(
            shape,
            block_stride=shape.block_stride,
            layer_stride=shape.layer_stride,
            head_stride=shape.head_stride,
            v_offset=shape.v_offset,
            k_order=api.ORDER_CHANNEL_TOKEN,
        )

    @contextlib.contextmanager
    def offered(self, agent: Path) -> Iterator[api.Pool]:
        """By its name."""
        yield api.Pool(file=self.name, blocks=self.blocks)

    def close(self) -> None:
        """Removes it."""
        self._file.close()


@dataclass(frozen=True)
class Exported:
    """Memory that a worker has allocated on a GPU, as its scheduler's side is told of it."""

    #: Whose descriptor it is.
    process: int
    descriptor: int
    #: The GPU's.
    uuid: bytes
    size: int


class GpuPool:
    """Memory of a GPU. In a block come layers, in a layer tokens, in a token heads, in a head K and then V: as a layer of
    vLLM's own blocks has them, token by token."""

    name = ""

    def __init__(self, exported: Exported, geometry: Geometry, blocks: int) -> None:
        self._exported = exported
        self._geometry = geometry
        self.blocks = blocks

    def layout(self) -> api.Layout:
        """K and V as [token][channel]."""
        shape = self._geometry
        token = shape.kv_heads * 2 * shape.head_dim * ELEMENT_BYTES
        return _layout(
            shape,
            block_stride=shape.layers * BLOCK_TOKENS * token,
            layer_stride=BLOCK_TOKENS * token,
            head_stride=2 * shape.head_dim * ELEMENT_BYTES,
            v_offset=shape.head_dim * ELEMENT_BYTES,
            k_order=api.ORDER_TOKEN_CHANNEL,
        )

    @contextlib.contextmanager
    def offered(self, agent: Path) -> Iterator[api.Pool]:
        """By a number that nobody can guess, under which the agent has got the descriptor."""
        name = os.urandom(16)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER)
            connection.connect(f"{agent}{SUFFIX}")
            socket.send_fds(connection, [name], [self._exported.descriptor])
            if connection.recv(1) != b"\x01":
                raise ConnectionAbortedError("the agent has not taken the descriptor of the GPU's memory")
            memory = api.GpuMemory(bytes=self._exported.size, descriptor=name)
            token = self._geometry.kv_heads * 2 * self._geometry.head_dim * ELEMENT_BYTES
            gpu = api.GpuPool(device_uuid=self._exported.uuid, memories=[memory], token_stride=token)
            yield api.Pool(blocks=self.blocks, gpu=gpu)

    def close(self) -> None:
        """Nothing: the memory ends with the worker, and at the agent when that lets go of it."""


def gpu_bytes(geometry: Geometry, blocks: int) -> int:
    """What so many blocks take on a GPU: as much as in a file."""
    return blocks * geometry.block_stride


def _layout(
    shape: Geometry,
    *,
    block_stride: int,
    layer_stride: int,
    head_stride: int,
    v_offset: int,
    k_order: api.Order,
) -> api.Layout:
    return api.Layout(
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_tokens=BLOCK_TOKENS,
        block_stride=block_stride,
        layer_stride=layer_stride,
        head_stride=head_stride,
        v_offset=v_offset,
        k_order=k_order,
        v_order=api.ORDER_TOKEN_CHANNEL,
        element=api.ELEMENT_TYPE_BF16,
        rotary=api.ROTARY_HALF_SPLIT,
        tensor_parallel_rank=0,
        tensor_parallel_size=1,
    )
