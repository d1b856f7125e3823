"""The process that starts a cluster's programs in order, and ends with the first of them that ends.

In a whole node it is the first process of the node's namespaces.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import NoReturn, TextIO

from . import programs, space
from .layout import FIRST_SERVICE_ADDRESS, NODE_NAME, Layout

# Far more than a slow machine took.
PATIENCE_S = 300

API_SERVER = "kube-apiserver"

# Between two looks at something that can't be waited for otherwise.
INTERVAL_S = 0.05


class Failure(Exception):
    """The cluster can't come up: the message says why, and where to look."""


class Supervisor:
    """Starts programs and sees to it that they live."""

    def __init__(self, layout: Layout, report: TextIO) -> None:
        self.layout = layout
        self.report = report
        self.running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self.killed: set[int] = set()
        self.deadline = time.monotonic() + PATIENCE_S

    def say(self, line: str) -> None:
        """To whoever called `up`."""
        print(line, file=self.report, flush=True)

    def start(self, name: str, arguments: list[str]) -> None:
        with open(self.layout.log(name), "ab") as log:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=space.die_with_parent,
            )
        self.running[child.pid] = (name, child)

    def await_until(self, what: str, reached: Callable[[], bool]) -> None:
        """Looks until it is so. Raises Failure when a program ended meanwhile, or after PATIENCE_S in all."""
        while not reached():
            for name, child in self.running.values():
                if child.poll() is not None:
                    raise Failure(f"{name} ended with status {child.returncode}: see {self.layout.log(name)}.")
            if time.monotonic() > self.deadline:
                raise Failure(f"{what} was not so after {PATIENCE_S} s: see {self.layout.folder / 'logs'}.")
            time.sleep(INTERVAL_S)

    def await_kubectl(self, what: str, *arguments: str) -> None:
        """Runs kubectl, which itself watches for `what`."""
        with open(self.layout.log("kubectl"), "ab") as log:
            child = subprocess.Popen(
                programs.kubectl(self.layout, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=space.die_with_parent,
            )
        self.await_until(what, lambda: child.poll() is not None)
        if child.returncode != 0:
            raise Failure(f"{what}: kubectl failed, see {self.layout.log('kubectl')}.")

    def await_condition(self, what: str, condition: str, name: str) -> None:
        self.await_kubectl(what, "wait", f"--for={condition}", name, f"--timeout={PATIENCE_S}s")

    def await_url(self, what: str, url: str) -> None:
        trusted = ssl.create_default_context(cafile=str(self.layout.pki("ca.crt")))
        self.await_until(what, lambda: answers(url, trusted))

    def bring_up(self, archives: list[str]) -> None:
        if self.layout.whole_node:
            space.enter(self.layout)
            self.start("containerd", programs.containerd(self.layout))
        self.control_plane()
        if self.layout.whole_node:
            self.node()
            self.import_images(archives)
        self.await_accounts()

    def control_plane(self) -> None:
        layout = self.layout
        self.start("etcd", programs.etcd(layout))
        self.await_url("etcd is healthy", f"{layout.etcd}/health")
        self.start(API_SERVER, programs.apiserver(layout))
        self.await_url("the API server is ready", f"{layout.api}/readyz")
        self.start("kube-controller-manager", programs.controller_manager(layout))
        # Without a kubelet too: tests make nodes of objects alone.
        self.start("kube-scheduler", programs.scheduler(layout))

    def node(self) -> None:
        layout = self.layout
        self.start("kube-proxy", programs.proxy(layout))
        self.start("kubelet", programs.kubelet(layout))
        rights = layout.folder / "config/coredns-rights.yaml"
        self.await_kubectl("CoreDNS has its rights", "create", "-f", str(rights))
        self.start("coredns", programs.coredns(layout))
        self.await_condition("the node exists", "create", f"node/{NODE_NAME}")
        self.await_condition("the node is ready", "condition=Ready", f"node/{NODE_NAME}")
        self.await_until("the first Service answers", lambda: accepts(FIRST_SERVICE_ADDRESS, 443))
        self.await_url("CoreDNS is ready", f"http://{layout.address}:8181/ready")

    def await_accounts(self) -> None:
        """Pods are refused in a namespace before its service account is there."""
        self.await_condition("the default account exists", "create", "serviceaccount/default")

    def import_images(self, archives: list[str]) -> None:
        socket_file = self.layout.containerd_socket
        self.await_until("containerd answers", lambda: accepts_unix(str(socket_file)))
        for archive in archives:
            with open(self.layout.log("images"), "ab") as log:
                ctr = [programs.host_program("ctr"), "--address", str(socket_file), "--namespace", "k8s.io"]
                done = subprocess.run([*ctr, "images", "import", archive], stdout=log, stderr=log, check=False)
            if done.returncode != 0:
                raise Failure(f"{archive} could not be imported: see {self.layout.log('images')}.")

    def stop(self) -> None:
        """Kills what it started: there is nothing in a test's cluster that is worth a farewell."""
        for _, child in self.running.values():
            child.kill()
        for _, child in self.running.values():
            child.wait()

    def kill_api_server(self, *_: object) -> None:
        """As a node's failure does it; `watch` starts another one."""
        for pid, (name, child) in self.running.items():
            if name == API_SERVER:
                self.killed.add(pid)
                child.kill()

    def watch(self) -> NoReturn:
        """Reaps until one of the cluster's own programs ends that nobody killed on purpose, and then ends too."""
        while True:
            pid, status = os.wait()
            if pid in self.killed:
                del self.running[pid]
                self.start(API_SERVER, programs.apiserver(self.layout))
            elif pid in self.running:
                name, _ = self.running[pid]
                sys.exit(f"{name} ended with status {os.waitstatus_to_exitcode(status)}, so the cluster ends.")


def answers(url: str, trusted: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2, context=trusted) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
        return True
    except OSError:
        return False


def accepts_unix(path: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
        return True
    except OSError:
        return False


def main(layout: Layout, archives: list[str], report: TextIO) -> None:
    """Brings the cluster up, says so in `report` (one line: "up", or "failed" and the reason), and watches it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Read before the node has a /proc of its own: the id by which others know this process.
    layout.supervisor_pid_file.write_text(os.readlink("/proc/self"))
    supervisor = Supervisor(layout, report)
    try:
        supervisor.bring_up(archives)
        signal.signal(signal.SIGUSR1, supervisor.kill_api_server)
        supervisor.say("up")
        report.close()
        supervisor.watch()
    except (Failure, programs.Missing, OSError) as reason:
        supervisor.say(f"failed {reason}")
        sys.exit(1)
    except subprocess.CalledProcessError as reason:
        supervisor.say(f"failed {' '.join(reason.cmd)}: {reason.stderr.strip()}")
        sys.exit(1)
    finally:
        supervisor.stop()
