"""What the agent is told of a pool in a GPU's memory, and how it gets the memory."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.pools import Exported, GpuPool, gpu_bytes
from lynx_vllm.staging import Geometry

GEOMETRY = Geometry(layers=2, kv_heads=3, head_dim=16)
UUID = bytes(range(16))


class Shelf:
    """Where an agent takes descriptors."""

    def __init__(self, folder: Path, answer: bytes) -> None:
        self.names: list[bytes] = []
        self.descriptors: list[int] = []
        #: Set when the connection is closed.
        self.is_over = threading.Event()
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(folder / "agent.sock.fds"))
        self._socket.listen()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            name, descriptors, _, _ = socket.recv_fds(connection, 64, 4)
            self.names.append(name)
            self.descriptors += descriptors
            connection.sendall(self._answer)
            if self._answer:
                connection.recv(1)
        self.is_over.set()

    def close(self) -> None:
        self._thread.join()
        self._socket.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


def pool(descriptor: int = 0) -> GpuPool:
    exported = Exported(os.getpid(), descriptor, UUID, gpu_bytes(GEOMETRY, 4))
    return GpuPool(exported, GEOMETRY, 4)


def test_places_are_those_of_the_copies_array() -> None:
    layout = pool().layout()
    assert layout.k_order == layout.v_order == api.ORDER_TOKEN_CHANNEL
    assert layout.block_tokens == 64
    # Of [block][layer][token][head][K, then V], in bytes.
    assert (layout.v_offset, layout.head_stride) == (32, 64)
    assert layout.layer_stride == 64 * 3 * 64
    assert layout.block_stride == 2 * layout.layer_stride
    assert gpu_bytes(GEOMETRY, 4) == 4 * layout.block_stride


def test_the_memory_goes_with_the_first_message_and_no_longer_than_it_is_awaited(folder: Path) -> None:
    shelf = Shelf(folder, b"\x01")
    with (folder / "memory").open("w+b") as file:
        file.write(b"kv")
        file.flush()
        with pool(file.fileno()).offered(folder / "agent.sock") as offered:
            assert not shelf.is_over.is_set()
            (memory,) = offered.gpu.memories
            assert [memory.descriptor] == shelf.names
            assert len(memory.descriptor) == 16
            assert (memory.bytes, offered.blocks, offered.file) == (gpu_bytes(GEOMETRY, 4), 4, "")
            assert (offered.gpu.device_uuid, offered.gpu.token_stride) == (UUID, 3 * 64)
        assert shelf.is_over.wait(20)
        assert os.pread(shelf.descriptors[0], 2, 0) == b"kv"
    shelf.close()


def test_an_agent_that_is_not_there_or_takes_no_descriptor_is_an_error_of_the_attempt(folder: Path) -> None:
    with pytest.raises(FileNotFoundError), pool().offered(folder / "agent.sock"):
        pass
    shelf = Shelf(folder, b"")
    with pytest.raises(ConnectionAbortedError, match="descriptor"), pool().offered(folder / "agent.sock"):
        pass
    shelf.close()
