"""Two nodes, an agent and an engine each: started, killed, started again, and looked at from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import client
from pair import ADDRESSES

PREFILL, DECODE = "prefill", "decode"
AGENT, ENGINE = "agent", "engine"
# Far more than a busy machine took to start an engine.
PATIENCE_S = 60
# Between two looks at something that can't be waited for otherwise.
INTERVAL_S = 0.005
THREADS = 2
MAX_TOKENS = 1024
PEER_PORT, DATA_PORT = 7400, 7401


class Unmet(Exception):
    """Something that must be so is not: the message says what."""


def until(what: str, so: Callable[[], bool], patience_s: float = PATIENCE_S) -> float:
    """Looks again and again until it is so; how long it took. Raises Unmet."""
    begun = time.monotonic()
    while not so():
        if time.monotonic() - begun > patience_s:
            raise Unmet(f"it did not come to this within {patience_s:g} s: {what}")
        time.sleep(INTERVAL_S)
    return time.monotonic() - begun


class Process:
    """One attended process: it says what it comes to, and ends when its input does."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log.open("ab")
        self.child = subprocess.Popen(
            [*command, "--attended"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **environment},
        )
        self.states: dict[str, dict] = {}
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        for line in self.child.stdout:
            said = json.loads(line)
            self.states[said["state"]] = said["about"]

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def has_ended(self) -> bool:
        return self.child.poll() is not None

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        self.close()

    def close(self) -> None:
        self.child.stdin.close()
        self.reader.join()
        self.child.stdout.close()
        self.log.close()


class Node:
    """An agent and its engine, in a folder of their own and in one end of a pair of namespaces."""

    def __init__(self, role: str, options: Options, config: dict) -> None:
        self.role = role
        self.options = options
        self.folder = options.folder / role
        self.folder.mkdir()
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.socket = self.folder / "engine.sock"
        self.config_file = self.folder / "agent.yaml"
        self.http = f"127.0.0.1:{8080 if role == PREFILL else 8090}"
        self.enter = ["ip", "netns", "exec", f"{options.pair}-{'a' if role == PREFILL else 'b'}"]
        config = {
            "role": role,
            "pod": {"name": role},
            "engine": {"socket": str(self.socket), "sharedDirectory": str(self.shared)},
            "http": {"admin": True},
            "telemetry": {"log": "info"},
            "transfer": {"objective": "verified", "anchor": {"mode": "fixed", "bits": 4}, "deadline": "20s"},
            **config,
        }
        # JSON is YAML.
        self.config_file.write_text(json.dumps(config))
        self.processes: dict[str, Process] = {}
        # What else each process is told by its environment.
        self.environment: dict[str, dict[str, str]] = {AGENT: {}, ENGINE: {}}

    def start(self, what: str) -> None:
        if what == AGENT:
            command = ["agent", "--config", str(self.config_file)]
        else:
            command = [
                *["engine", "--role", self.role, "--model", self.options.model, "--name", client.MODEL],
                *["--socket", str(self.socket), "--shared-directory", str(self.shared)],
                *["--threads", str(THREADS), "--max-tokens", str(MAX_TOKENS)],
            ]
        log = self.options.folder / f"{self.role}-{what}.log"
        enter = [*self.enter, self.options.program]
        self.processes[what] = Process([*enter, *command], log, self.environment[what])

    def start_both(self) -> None:
        self.start(AGENT)
        until(f"the {self.role} agent listens", lambda: "listening" in self.processes[AGENT].states)
        self.start(ENGINE)

    def restart(self, what: str) -> None:
        """Starts a process again; for an engine, waits until it is attached: its agent may be ready still by the last one."""
        before = self.metric("lynx_engine_attaches_total") if what == ENGINE else 0.0
        self.start(what)
        if what == ENGINE:
            until(f"the {self.role} engine is attached", lambda: self.metric("lynx_engine_attaches_total") > before)

    def kill(self, what: str) -> None:
        self.processes[what].kill()

    def stop(self) -> None:
        for process in self.processes.values():
            if not process.has_ended():
                process.signal(signal.SIGCONT)
                process.kill()

    def fetch(self, path: str, body: dict | None = None) -> tuple[int, str]:
        """From the agent, which may be in another namespace than this process. Raises OSError."""
        if self.role == DECODE:
            return client.fetch(self.http, path, body)
        return client.fetch(f"{ADDRESSES['a']}:8080", path, body)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 where there is none. Raises OSError."""
        _, text = self.fetch("/metrics")
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value in lines if key.split("{")[0] == name)

    def is_ready(self) -> bool:
        try:
            return self.fetch("/readyz")[0] == 200
        except OSError:
            return False

    def is_linked(self) -> bool:
        try:
            return self.metric("lynx_link_up") == 1
        except OSError:
            return False

    def forget(self) -> None:
        status, text = self.fetch("/lynx/v1/prefix-cache/reset", {})
        if status != 200:
            raise Unmet(f"the {self.role} node does not forget: {text}")

    def figures(self) -> dict[str, tuple[int, int]]:
        """By process: how many descriptors are open, and how much memory is resident, in KiB."""
        return {what: figures(process.child.pid) for what, process in self.processes.items()}


def figures(process: int) -> tuple[int, int]:
    descriptors = len(os.listdir(f"/proc/{process}/fd"))
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    # What is this process's own: a pool is shared memory, and resident where it was touched.
    (resident,) = (int(line.split()[1]) for line in status if line.startswith("RssAnon:"))
    return descriptors, resident


class Options:
    """What the nodes are made of."""

    def __init__(self, pair: str, program: str, model: str, folder: Path) -> None:
        self.pair = pair
        self.program = program
        self.model = model
        self.folder = folder


class Nodes:
    """A prefill node at one end of the cable and a decode node at the other, where this process is too."""

    def __init__(self, options: Options, peer: str = "", data: str = "") -> None:
        """`peer` and `data` are where the decode agent is told that the prefill agent is, if not where it is."""
        here = ADDRESSES["a"]
        self.options = options
        listen = {
            "http": "0.0.0.0:8080",
            "drain": "127.0.0.1:8081",
            "peer": f"{here}:{PEER_PORT}",
            "data": f"{here}:{DATA_PORT}",
        }
        if data:
            listen["announcedData"] = data
        self.prefill = Node(PREFILL, options, {"listen": listen})
        listen = {"http": "127.0.0.1:8090", "drain": "127.0.0.1:8091"}
        peers = [peer or f"{here}:{PEER_PORT}"]
        self.decode = Node(DECODE, options, {"listen": listen, "peers": peers})
        self.nodes = {PREFILL: self.prefill, DECODE: self.decode}

    def __enter__(self) -> Nodes:
        try:
            for node in self.nodes.values():
                node.start_both()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()

    def wait(self) -> float:
        """Waits until both nodes work and are linked; how long it took."""
        return until(
            "both nodes are ready and linked",
            lambda: self.prefill.is_ready() and self.decode.is_ready() and self.decode.is_linked(),
        )

    def forget(self) -> None:
        for node in self.nodes.values():
            node.forget()

    def is_quiet(self) -> bool:
        """Whether nothing is in flight in either node."""
        return all(node.metric("lynx_in_flight") == 0 for node in self.nodes.values())

    def segments(self) -> list[str]:
        """Pools that nobody has: files in the shared folders that belong to no living engine."""
        left = []
        for node in self.nodes.values():
            own = f"kv-{node.processes[ENGINE].child.pid}"
            left += [f"{node.role}/{file.name}" for file in node.shared.iterdir() if file.name != own]
        return left

    def log(self, role: str, what: str) -> str:
        return (self.options.folder / f"{role}-{what}.log").read_text(errors="replace")
