"""The links of the pods: how fast each may be, and what goes over them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

# What passes at once when the link was idle, and how long a packet may wait: a switch's port, roughly.
BURST = "64kb"
LATENCY = "50ms"


class NoSuchPod(Exception):
    """The pod has no link on the node."""


def throttle(supervisor: int, pod: str, rate: str) -> None:
    """Lets no more than `rate` (as tc(8) writes it, or "none" for no limit) in to the pod, a NAMESPACE/NAME."""
    device = host_end(Path(f"/proc/{supervisor}/root"), pod)
    tc = ["nsenter", f"--net=/proc/{supervisor}/ns/net", "--", "tc", "qdisc"]
    # Removing a limit that isn't there is no error to anybody.
    subprocess.run([*tc, "delete", "dev", device, "root"], capture_output=True, check=False)
    if rate != "none":
        limit = ["tbf", "rate", rate, "burst", BURST, "latency", LATENCY]
        subprocess.run([*tc, "add", "dev", device, "root", *limit], capture_output=True, check=True, text=True)


def within(supervisor: int, pod: str) -> list[str]:
    """What a command begins with that runs in the network of the pod, a NAMESPACE/NAME."""
    node = Path(f"/proc/{supervisor}/root")
    sandbox = next(each["sandbox"] for each in interfaces(node, pod) if "sandbox" in each)
    return ["nsenter", f"--net={node / 'run/netns' / Path(sandbox).name}", "--"]


def host_end(node: Path, pod: str) -> str:
    """The node's end of a pod's link."""
    return next(each["name"] for each in interfaces(node, pod) if each["name"].startswith("veth"))


def interfaces(node: Path, pod: str) -> list[dict[str, str]]:
    """Both ends of a pod's link, as the CNI library's cache in the node's files has them. Raises NoSuchPod."""
    for file in (node / "var/lib/cni/results").glob("pods-*-eth0"):
        result = json.loads(file.read_text())
        arguments = dict(result["cniArgs"])
        if f"{arguments['K8S_POD_NAMESPACE']}/{arguments['K8S_POD_NAME']}" == pod:
            return result["result"]["interfaces"]
    raise NoSuchPod(f"There is no pod {pod} with an address on the node: see `kubectl get pods -A -o wide`.")
