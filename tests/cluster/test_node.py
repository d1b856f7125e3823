#!/usr/bin/env python3
"""Tests of tests/cluster/node itself, as root: what it brings up works, and nothing of it stays.

    tests/cluster/test_node.py PAUSE_ARCHIVE

Lynx's own pods are tested elsewhere, on a node that these tests have shown to be one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from parts import programs, space

HERE = Path(__file__).parent
TIMEOUT_S = 400


def call(kind: str, *words: str, stdin: str = "", succeeds: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HERE / kind, *words], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert not succeeds or done.returncode == 0, f"{kind} {' '.join(words)}: {done.stdout}{done.stderr}"
    return done


def traces(folder: Path) -> dict[str, list[str]]:
    """What a node could leave behind on the machine."""
    commands = [read(file) for file in Path("/proc").glob("[0-9]*/cmdline")]
    return {
        "mounts": sorted(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "cgroups": sorted(str(each) for root in space.cgroup_roots() for each in root.glob("lynx-*")),
        "places": [place for place in ("/var/lib/kubelet", "/var/lib/cni", "/run/netns") if Path(place).exists()],
        "processes": [command.decode() for command in commands if str(folder).encode() in command],
        "rules": subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout.split("\n"),
    }


def read(file: Path) -> bytes:
    """Nothing of a process that has ended meanwhile."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def pod(image: str) -> str:
    """A pod with a native sidecar and a volume in memory: what an engine with its agent is made of."""
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    container = {"image": image, "imagePullPolicy": "Never", "volumeMounts": mounts}
    spec = {
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{**container, "name": "agent", "restartPolicy": "Always"}],
        "containers": [{**container, "name": "engine"}],
        "volumes": [{"name": "shared", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": spec})


class Node(unittest.TestCase):
    archive: Path
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name) / "cluster"
        os.environ["LYNX_CLUSTER"] = str(cls.folder)
        cls.before = traces(cls.folder)

    @classmethod
    def tearDownClass(cls) -> None:
        call("node", "down")
        del os.environ["LYNX_CLUSTER"]
        cls.scratch.cleanup()

    def kubectl(self, *words: str, stdin: str = "") -> str:
        return call("node", "run", "kubectl", *words, stdin=stdin).stdout

    def test_a_pod_runs_and_everything_goes_with_the_node(self) -> None:
        call("node", "up", str(self.archive))
        self.kubectl("create", "-f", "-", stdin=pod(programs.pause_image([self.archive])))
        self.kubectl("wait", "--for=condition=Ready", "pod/trial", "--timeout=300s")
        address = self.kubectl("get", "pod/trial", "-o", "jsonpath={.status.podIP}")
        self.assertTrue(address.startswith("10.244.0."), address)

        # The API server's own Service, from where a test calls Services.
        version = self.kubectl("--server=https://10.96.0.1", "version", "-o", "json")
        self.assertTrue(json.loads(version)["serverVersion"]["gitVersion"].startswith("v1."))

        call("node", "throttle", "default/trial", "10mbit")
        self.assertIn("rate 10Mbit", call("node", "run", "tc", "qdisc", "show").stdout)
        call("node", "throttle", "default/trial", "none")
        self.assertNotIn("rate 10Mbit", call("node", "run", "tc", "qdisc", "show").stdout)

        again = call("node", "up", str(self.archive), succeeds=False)
        self.assertIn("is up in", again.stderr)

        # With the pod still there: whatever a test leaves behind must go too.
        call("node", "down")
        self.assertEqual(traces(self.folder), self.before)
        self.assertFalse(self.folder.exists())

    def test_an_archive_that_is_none_is_named(self) -> None:
        broken = Path(self.scratch.name) / "broken.tar"
        broken.write_text("not an archive")
        for archives in ([self.archive, broken], [broken, self.archive]):
            failed = call("node", "up", *map(str, archives), succeeds=False)
            self.assertIn(str(broken), failed.stderr)
            self.assertNotIn("Traceback", failed.stderr)
        call("node", "down")
        self.assertEqual(traces(self.folder), self.before)

    def test_a_node_without_a_pause_image_says_how_to_get_one(self) -> None:
        failed = call("node", "up", succeeds=False)
        self.assertIn("cargo xtask images pause", failed.stderr)

    def test_a_control_plane_ends_with_its_supervisor(self) -> None:
        call("control-plane", "up")
        call("control-plane", "run", "kubectl", "get", "serviceaccount/default")
        call("control-plane", "down")
        self.assertEqual(traces(self.folder), self.before)


if __name__ == "__main__":
    Node.archive = Path(sys.argv.pop()).resolve(strict=True)
    unittest.main()
