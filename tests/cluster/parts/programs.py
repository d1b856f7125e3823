"""How each program of the cluster is called. A function here returns an argument list and does nothing."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from string import Template

from .layout import NODE_NAME, POD_NETWORK, SERVICE_NETWORK, Layout

KUBE_TOOLS = Path(__file__).parents[3] / "scripts" / "kube-tools"
CONFIG = Path(__file__).parent.parent / "config"

# By default controllers ask 20 times a second at most: with hundreds of deployments that alone would be measured.
UNHURRIED = ["--kube-api-qps=500", "--kube-api-burst=1000"]

TOOLS = ["kube", "etcd", "coredns", "helm", "jaeger", "prometheus", "cert-manager", "kube-router", "keda"]

# Where distributions keep the CNI plugins: Debian's package, and the place that the CNI project's own archive names.
CNI_PROGRAMS = [Path("/usr/lib/cni"), Path("/opt/cni/bin")]

# The supervisor's private tmpfs: see space.py.
RUN = Path("/run")


# What scripts/need brings. The CNI plugins call iptables, the kubelet mount, kube-proxy nft.
NODE_PROGRAMS = ["containerd", "ctr", "runc", "ip", "iptables", "mount", "nft", "nsenter", "tc", "unshare"]


class Missing(Exception):
    """Something that the machine must have: the message says how to get it."""


@functools.cache
def tool_folder(tool: str) -> Path:
    """Where scripts/kube-tools has put a tool. Raises Missing."""
    found = subprocess.run([KUBE_TOOLS, "--where", tool], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Missing(found.stderr.strip())
    return Path(found.stdout.strip())


def built_tools() -> list[Path]:
    """The folders of all tools that are built."""
    found = []
    for tool in TOOLS:
        with contextlib.suppress(Missing):
            found.append(tool_folder(tool))
    return found


def program(tool: str, name: str) -> str:
    """A program of a tool. The one in KUBEBUILDER_ASSETS goes first. Raises Missing."""
    given = Path(os.environ.get("KUBEBUILDER_ASSETS", ""), name)
    return str(given if given.is_absolute() and os.access(given, os.X_OK) else tool_folder(tool) / name)


def kube(component: str) -> str:
    return program("kube", component)


def host_program(name: str) -> str:
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if found is None:
        raise Missing(f"{name} is missing: run scripts/need {name} as root, and try again.")
    return found


def cni_programs() -> Path:
    for place in CNI_PROGRAMS:
        if (place / "bridge").exists():
            return place
    raise Missing("The CNI plugins are missing: run scripts/need cni as root, and try again.")


def check(whole_node: bool) -> None:
    """Raises Missing if the machine lacks something that a cluster consists of."""
    for name in ["openssl", *(NODE_PROGRAMS if whole_node else [])]:
        host_program(name)
    for tool in ["kube", "etcd", *(["coredns"] if whole_node else [])]:
        tool_folder(tool)
    if whole_node:
        cni_programs()


def pause_image(archives: list[Path]) -> str:
    """The name of the image that holds a pod's namespaces, from the archive that has it. Raises Missing."""
    for archive in archives:
        try:
            with tarfile.open(archive) as packed:
                index = json.load(packed.extractfile("index.json") or io.BytesIO(b"{}"))
        except (tarfile.TarError, KeyError, ValueError) as reason:
            raise Missing(f"{archive} is not an image as an OCI archive ({reason}): make it again.") from reason
        names = [each.get("annotations", {}).get("io.containerd.image.name", "") for each in index.get("manifests", [])]
        for name in names:
            if re.search(r"/pause:[^/]+$", name):
                return name
    raise Missing("No pod runs without a pause image: make one with `cargo xtask images pause`, and name its archive.")


def write_configuration(layout: Layout, archives: list[Path]) -> None:
    """Fills every file of config/ in and writes it to the cluster's folder."""
    values = {
        "address": layout.address,
        "cgroup": layout.cgroup,
        "cni_programs": cni_programs() if layout.whole_node else "",
        "containerd_socket": layout.containerd_socket,
        "folder": layout.folder,
        "node_name": NODE_NAME,
        "pause_image": pause_image(archives) if layout.whole_node else "",
        "pod_network": POD_NETWORK,
        "run": RUN,
    }
    for source in filter(Path.is_file, CONFIG.rglob("*")):
        target = layout.folder / "config" / source.relative_to(CONFIG)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(source.read_text()).substitute(values))


def etcd(layout: Layout) -> list[str]:
    return [
        program("etcd", "etcd"),
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={layout.etcd}",
        f"--advertise-client-urls={layout.etcd}",
        f"--listen-peer-urls={layout.etcd_peer}",
        f"--initial-advertise-peer-urls={layout.etcd_peer}",
        f"--initial-cluster=default={layout.etcd_peer}",
        # What it holds dies with the cluster.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(layout: Layout) -> list[str]:
    return [
        kube("kube-apiserver"),
        f"--etcd-servers={layout.etcd}",
        f"--bind-address={'0.0.0.0' if layout.whole_node else layout.address}",
        f"--advertise-address={layout.address}",
        f"--secure-port={layout.api_port}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--client-ca-file={layout.pki('ca.crt')}",
        f"--tls-cert-file={layout.pki('apiserver.crt')}",
        f"--tls-private-key-file={layout.pki('apiserver.key')}",
        f"--service-account-key-file={layout.pki('accounts.pub')}",
        f"--service-account-signing-key-file={layout.pki('accounts.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        # By these it tells APIs that it passes requests on to who asks.
        f"--requestheader-client-ca-file={layout.pki('front-proxy-ca.crt')}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={layout.pki('front-proxy.crt')}",
        f"--proxy-client-key-file={layout.pki('front-proxy.key')}",
        f"--kubelet-certificate-authority={layout.pki('ca.crt')}",
        f"--kubelet-client-certificate={layout.pki('kubelet-client.crt')}",
        f"--kubelet-client-key={layout.pki('kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--profiling=false",
        # Its default is to let a load balancer notice first, for which there is none here.
        "--shutdown-delay-duration=0s",
    ]


def controller_manager(layout: Layout) -> list[str]:
    return [
        kube("kube-controller-manager"),
        f"--kubeconfig={layout.pki('kube-controller-manager.kubeconfig')}",
        f"--service-account-private-key-file={layout.pki('accounts.key')}",
        f"--root-ca-file={layout.pki('ca.crt')}",
        f"--cluster-signing-cert-file={layout.pki('ca.crt')}",
        f"--cluster-signing-key-file={layout.pki('ca.key')}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        *UNHURRIED,
    ]


def scheduler(layout: Layout) -> list[str]:
    return [
        kube("kube-scheduler"),
        f"--kubeconfig={layout.pki('kube-scheduler.kubeconfig')}",
        "--leader-elect=false",
        "--secure-port=0",
        *UNHURRIED,
    ]


def containerd(layout: Layout) -> list[str]:
    return [host_program("containerd"), f"--config={layout.folder / 'config/containerd.toml'}"]


def kubelet(layout: Layout) -> list[str]:
    return [
        kube("kubelet"),
        f"--config={layout.folder / 'config/kubelet.yaml'}",
        f"--kubeconfig={layout.pki('kubelet.kubeconfig')}",
        f"--root-dir={layout.folder / 'kubelet'}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={layout.address}",
    ]


def proxy(layout: Layout) -> list[str]:
    return [kube("kube-proxy"), f"--config={layout.folder / 'config/kube-proxy.yaml'}"]


def coredns(layout: Layout) -> list[str]:
    return [program("coredns", "coredns"), "-conf", str(layout.folder / "config/Corefile")]


def kubectl(layout: Layout, *arguments: str) -> list[str]:
    return [kube("kubectl"), f"--kubeconfig={layout.kubeconfig}", *arguments]
