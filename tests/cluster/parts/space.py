"""The node's own space: its mounts, its network, its cgroups.

The node lives in namespaces of its own (processes, network, mounts), so that nothing of it has to be undone: when the
first of its processes ends, the kernel ends the others, and with the last of them go the mounts, the interfaces and the
packet filter's rules. Only cgroups outlive their processes, and are removed here.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from .layout import POD_NETWORK, SERVICE_NETWORK, Layout

# Programs of the node write to fixed places below these. In the node they are empty file systems in memory.
PRIVATE = ["/run", "/var/lib", "/var/log"]

# unshare(1)'s options for the node's namespaces. If unshare itself is killed, so is the node.
UNSHARE = ["unshare", "--fork", "--pid", "--net", "--ipc", "--mount", "--kill-child", "--"]

SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    # Otherwise a packet from pod to pod passes the bridge without meeting the Services' rules.
    "net/bridge/bridge-nf-call-iptables": "1",
    "net/ipv4/conf/all/rp_filter": "0",
}


def enter(layout: Layout) -> None:
    """Furnishes the namespaces that this process was started in."""
    mounts()
    network(layout.address)
    make_cgroups(layout)


def mounts() -> None:
    command("mount", "-t", "proc", "proc", "/proc")
    for place in PRIVATE:
        command("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place)
    # As on a real node: pods may ask that mounts be passed on. Beyond these namespaces nothing is.
    command("mount", "--make-rshared", "/")


def network(address: str) -> None:
    """An interface that leads nowhere, for the node's address and the Services' route."""
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    command("ip", "link", "set", "node0", "up")
    command("ip", "link", "set", "node1", "up")
    command("ip", "address", "add", f"{address}/32", "dev", "node0")
    command("ip", "route", "add", SERVICE_NETWORK, "dev", "node0", "src", address)
    command("ip", "route", "add", "unreachable", "default")
    if not Path("/proc/sys/net/bridge").exists():
        command("modprobe", "br_netfilter")
    for name, value in SYSCTLS.items():
        Path("/proc/sys", name).write_text(value)


def command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def cgroup_roots() -> list[Path]:
    """Where each hierarchy of cgroups is mounted, of version 1 and 2 alike."""
    fields = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(place) for _, place, kind, *_ in fields if kind in ("cgroup", "cgroup2")]


def make_cgroups(layout: Layout) -> None:
    for root in cgroup_roots():
        group = root / layout.cgroup
        group.mkdir(exist_ok=True)
        # A cpuset of version 1 starts empty, and an empty one takes no process.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (group / name).exists() and (root / "cpuset.effective_cpus").exists():
                (group / name).write_text((root / name).read_text())


def remove_cgroups(layout: Layout) -> None:
    """Removes the pods' cgroups. Raises OSError if a process still lives in one."""
    for root in cgroup_roots():
        for place, _, _ in os.walk(root / layout.cgroup, topdown=False):
            os.rmdir(place)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when the thread that started it ends (PR_SET_PDEATHSIG in prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)
