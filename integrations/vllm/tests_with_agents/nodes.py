"""A node as far as Lynx goes: a real agent whose CUDA driver is the double, and an engine that has vLLM's place."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lynx_vllm.channel import Sender, path_of
from lynx_vllm.cuda import Driver
from lynx_vllm.engine import Engine, Model
from lynx_vllm.gpu_copying import GpuCopier
from lynx_vllm.options import Options, Role
from lynx_vllm.pools import Exported, GpuPool, gpu_bytes
from lynx_vllm.staging import BLOCK_TOKENS, Geometry

ROOT = Path(__file__).resolve().parents[3]
GEOMETRY = Geometry(layers=2, kv_heads=2, head_dim=64)
STAGING = 16
#: Tokens of a block of the engine's own, and how many it has.
BLOCK, BLOCKS = 16, 64
#: How long anything may take, in seconds.
PATIENCE = 60.0


def until(what: str, so: Callable[[], bool]) -> None:
    """Looks again and again until it is so."""
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, f"it did not come to this: {what}"
        time.sleep(0.01)


def driver_folder(folder: Path, library: str) -> Path:
    """Where an agent finds the double for its driver, and kernels for that."""
    (folder / "libcuda.so").symlink_to(library)
    kernels = folder / "kernels"
    kernels.mkdir()
    source = ROOT / "kernels/cuda"
    digest = hashlib.sha256()
    for path in sorted([*source.glob("*.cu"), *source.glob("*.cuh")]):
        digest.update(path.read_bytes())
    (kernels / "SOURCE").write_text(digest.hexdigest())
    for line in (source / "variants.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            build = line.split()[0]
            (kernels / f"{build}.sm_90.cubin").write_text(f"fake:{build}")
    return folder


def held_port() -> socket.socket:
    """A port that is nobody else's for as long as this is open; who is told of it can listen there, as often as he likes."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def post(port: int, body: dict[str, Any]) -> tuple[int, str]:
    """One question to somebody's OpenAI interface."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer = reply.status, reply.read().decode()
    connection.close()
    return answer


class Node:
    """An agent, an engine whose KV is on the double of a GPU, and its HTTP server."""

    def __init__(
        self, role: Role, folder: Path, drivers: Path, library: str, ports: list[int], peers: list[str]
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.port, drain, peer, data, self.http = ports
        self.peer = f"127.0.0.1:{peer}"
        options = Options(role, folder / "engine.sock", folder, STAGING, weights="w")
        self.engine = Engine(options, Model("m", b"f", GEOMETRY, 2048, "a test's"), role.value)
        self.driver = Driver(0, (library,))
        self.memory = self.driver.allocate(gpu_bytes(GEOMETRY, STAGING))
        exported = Exported(os.getpid(), self.memory.descriptor, self.driver.uuid(), self.memory.size)
        self.pool = self._array(self.memory.address)
        shape = (BLOCKS, GEOMETRY.kv_heads, BLOCK, 2 * GEOMETRY.head_dim)
        #: The engine's own blocks.
        self.caches = [np.zeros(shape, dtype=np.int16) for _ in range(GEOMETRY.layers)]
        self.sender = Sender(path_of(folder, role.value))
        self.answer: Callable[[dict[str, Any]], None] = lambda body: None
        self._serve()
        self.engine.start(GpuPool(exported, GEOMETRY, STAGING))
        self._drivers = drivers
        listen = {"http": self.port, "drain": drain, "peer": peer, "data": data}
        self._configure(role, {name: f"127.0.0.1:{port}" for name, port in listen.items()}, peers)
        self.start_agent()

    def start_agent(self) -> None:
        """Starts the agent, with the double for its driver."""
        with (self.folder / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(
                [os.environ["LYNX_PROGRAM"], "agent", "--config", str(self.folder / "agent.yaml")],
                env={**os.environ, "LD_LIBRARY_PATH": str(self._drivers)},
                stdout=log,
                stderr=log,
            )

    def metric(self, name: str) -> float:
        """The sum of one of the agent's metrics over its labels."""
        lines = [line.rsplit(" ", 1) for line in self.fetch("/metrics")[1].splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value in lines if key.split("{")[0] == name)

    def copier(self, device: Any) -> GpuCopier:
        """What copies between the engine's blocks and the pool."""
        return GpuCopier(GEOMETRY, BLOCK, self.caches, self.pool, device, self.sender)

    def fetch(self, path: str) -> tuple[int, str]:
        """From the agent; 0 where it isn't there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def is_ready(self) -> bool:
        assert self.agent.poll() is None, (self.folder / "agent.log").read_text()
        return self.fetch("/readyz")[0] == 200

    def close(self) -> None:
        """Ends all of it; the agent at last, which has the memory until then."""
        self.engine.close()
        self.agent.kill()
        self.agent.wait()
        self.server.shutdown()
        self.server.server_close()
        self.memory.free()
        self.driver.close()

    def _array(self, address: int) -> npt.NDArray[np.int16]:
        shape = (STAGING, GEOMETRY.layers, BLOCK_TOKENS, GEOMETRY.kv_heads, 2 * GEOMETRY.head_dim)
        memory = type("Memory", (), {"__array_interface__": self.memory.array(shape)})()
        return np.asarray(memory)

    def _configure(self, role: Role, listen: dict[str, str], peers: list[str]) -> None:
        engine = {
            **{"socket": str(self.folder / "engine.sock"), "sharedDirectory": str(self.folder)},
            **{"http": f"http://127.0.0.1:{self.http}", "kernels": str(self._drivers / "kernels")},
        }
        config = {
            **{"role": role.value, "pod": {"name": role.value}, "engine": engine, "listen": listen},
            "transfer": {"objective": "verified", "anchor": {"mode": "fixed", "bits": 4}, "deadline": "20s"},
        }
        if peers:
            config["peers"] = peers
        # JSON is YAML.
        (self.folder / "agent.yaml").write_text(json.dumps(config))

    def _serve(self) -> None:
        node = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply({})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                node.answer(body)
                choice = {"index": 0, "text": "yes", "finish_reason": "length", "logprobs": None}
                self._reply({"id": "1", "object": "text_completion", "model": "m", "created": 1, "choices": [choice]})

            def log_message(self, *_: object) -> None:
                pass

            def _reply(self, answer: dict[str, Any]) -> None:
                text = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.http), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
