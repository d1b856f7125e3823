#!/usr/bin/env python3
"""Tests of the chart against an API server: `tests/cluster/control-plane run tests/cluster/test_chart.py`.

An older chart is installed, a deployment made, and the chart upgraded. Without nodes no Job runs, so the definition is
applied here; the journey on a node has hooks and pods.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from journey.kubectl import PATIENCE_S, Object, Unmet, apply, condition, get, kubectl, read, run, watch

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "lynx"
DEFINITION = ROOT / "crds" / "yaml" / "lynxdeployments.yaml"
EXAMPLE = ROOT / "examples" / "embedded-cpu.yaml"
SYSTEM = "chart-system"
TEAM = "chart-team"


def helm(verb: str, chart: Path, *more: str) -> None:
    run("helm", verb, "lynx", str(chart), "--namespace", SYSTEM, "--no-hooks", *more)


def older(folder: Path) -> Path:
    """The chart as a release before this one: another version, whose pods are of other images."""
    chart = folder / "lynx"
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    about.write_text(about.read_text().replace("ersion: 0.1.0", "ersion: 0.0.9"))
    return chart


def established(definition: Object) -> bool:
    return condition(definition, "Established").get("status") == "True"


def names(kind: str, *where: str) -> set[str]:
    return {item["metadata"]["name"] for item in get(kind, *where)["items"]}


class Chart(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        kubectl("apply", "--server-side", "--force-conflicts", f"--filename={DEFINITION}")
        watch("the definition is served", established, "crd", "lynxdeployments.lynx.dev")
        for name in (SYSTEM, TEAM):
            labels = {"pod-security.kubernetes.io/enforce": "restricted"} if name == SYSTEM else {}
            apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
            # Pods are refused before it is there.
            kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", f"--timeout={PATIENCE_S}s")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()
        kubectl("delete", "namespace", SYSTEM, TEAM, "--wait=false")

    def operator(self) -> Object:
        return get("deployment/lynx-operator", "--namespace", SYSTEM)

    def test_an_upgrade_with_deployments_in_place_changes_the_operator_and_nothing_of_theirs(self) -> None:
        helm("install", older(Path(self.folder.name)))
        before = self.operator()
        example = read(str(EXAMPLE))
        example["metadata"]["namespace"] = TEAM
        apply(example)
        made = get("lynx/smollm2", "--namespace", TEAM)

        helm("upgrade", CHART, "--set", f"replicas=2,namespaces={{{TEAM}}}")
        after = self.operator()
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual(after["spec"]["replicas"], 2)
        image = after["spec"]["template"]["spec"]["containers"][0]["image"]
        self.assertTrue(image.endswith(":0.1.0"), image)
        kept = get("lynx/smollm2", "--namespace", TEAM)
        for field in ("uid", "generation", "resourceVersion"):
            self.assertEqual(kept["metadata"][field], made["metadata"][field])
        self.assertEqual(kept["spec"], made["spec"])
        # From rights everywhere to rights in one namespace: what was granted before is gone.
        self.assertNotIn(f"{SYSTEM}:lynx-operator", names("clusterrole"))
        self.assertIn("lynx-operator", names("role", "--namespace", TEAM))
        self.assertIn("lynx-operator", names("poddisruptionbudget", "--namespace", SYSTEM))

        run("helm", "uninstall", "lynx", "--namespace", SYSTEM, "--no-hooks")
        self.assertIn("lynxdeployments.lynx.dev", names("crd"))
        self.assertEqual(get("lynx/smollm2", "--namespace", TEAM)["metadata"]["uid"], made["metadata"]["uid"])

    def test_a_restricted_namespace_takes_the_operators_pods(self) -> None:
        rendered = run("helm", "template", "safe", str(CHART), "--namespace", SYSTEM, "--show-only", "templates/deployment.yaml")
        deployment = read(self.write("deployment.yaml", rendered))
        pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
        pod["metadata"] |= {"name": "operator", "namespace": SYSTEM}
        pod["spec"]["serviceAccountName"] = "default"
        kubectl("create", "--dry-run=server", "--filename=-", text=json.dumps(pod))
        pod["spec"]["hostNetwork"] = True
        with self.assertRaises(Unmet):
            kubectl("create", "--dry-run=server", "--filename=-", text=json.dumps(pod))

    def test_the_api_server_knows_every_object_and_field_that_the_chart_makes(self) -> None:
        for values in ("replicas=1", "replicas=3", f"namespaces={{{TEAM}}}", "metrics.dashboard.enabled=true"):
            rendered = run("helm", "template", "dry", str(CHART), "--namespace", SYSTEM, "--set", values)
            kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", text=rendered)

    def write(self, name: str, text: str) -> str:
        path = Path(self.folder.name) / name
        path.write_text(text)
        return str(path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
