"""Where a cluster keeps its things, and at which addresses it answers."""

from __future__ import annotations

import json
import os
import random
import socket
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

NODE_NAME = "lynx-node"

# The node's network is closed and its own, so these clash with nothing on the machine.
NODE_ADDRESS = "10.88.0.1"
POD_NETWORK = "10.244.0.0/24"
SERVICE_NETWORK = "10.96.0.0/16"
FIRST_SERVICE_ADDRESS = "10.96.0.1"

# Below the ports that Linux takes for connections (ip_local_port_range).
PORTS = range(20000, 30000)

# The longest path of a Unix socket is 107 bytes (sun_path in unix(7)), and containerd's lies 15 below the folder.
LONGEST_FOLDER = 90


@dataclass(frozen=True)
class Layout:
    """One cluster: its folder, what it consists of, and where it listens."""

    folder: Path
    whole_node: bool
    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @staticmethod
    def node(folder: Path) -> Layout:
        """A whole node: it has a network of its own, so the ports are the usual ones."""
        return Layout(folder, True, NODE_ADDRESS, 6443, 2379, 2380)

    @staticmethod
    def control_plane(folder: Path) -> Layout:
        """The control plane alone: beside whatever else runs on the machine, so the ports are free ones."""
        api, etcd, etcd_peer = free_ports(3)
        return Layout(folder, False, "127.0.0.1", api, etcd, etcd_peer)

    @staticmethod
    def load(folder: Path) -> Layout:
        """What `save` wrote. Raises FileNotFoundError if there is no cluster in the folder."""
        values = json.loads((folder / "layout.json").read_text())
        return Layout(**{**values, "folder": folder})

    def save(self) -> None:
        (self.folder / "layout.json").write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))

    @property
    def api(self) -> str:
        return f"https://{self.address}:{self.api_port}"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"

    @property
    def etcd_peer(self) -> str:
        return f"http://127.0.0.1:{self.etcd_peer_port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def supervisor_pid_file(self) -> Path:
        return self.folder / "supervisor.pid"

    @property
    def cgroup(self) -> str:
        """The cgroup of all pods: named after the folder, so that two clusters never share one."""
        return f"lynx-{self.folder.stat().st_ino}"

    def pki(self, name: str) -> Path:
        return self.folder / "pki" / name

    def log(self, program: str) -> Path:
        return self.folder / "logs" / f"{program}.log"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that nobody's connection is given while a server starts again."""
    candidates = random.sample(PORTS, len(PORTS))
    return list(islice(filter(is_free, candidates), count))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def cache() -> Path:
    return Path(os.environ.get("LYNX_CACHE") or Path.home() / ".cache" / "lynx")
