"""Programs of other projects that a deployment lives with: KEDA, cert-manager, and a firewall that enforces NetworkPolicies."""

from __future__ import annotations

import json
import os
import subprocess

from . import keda, steps
from .client import Load
from .kubectl import Object, Unmet, apply, condition, get, kubectl, look, run, watch
from .programs import running
from .steps import CHART, NAMESPACE, NODE, ROOT, SYSTEM, TIMEOUT, Journey, certificates

# The ports of agents and of the operator, as docs/kubernetes.md and the chart have them.
HTTP, DRAIN, PEER, DATA, CONTROL = 8080, 8081, 7400, 7401, 9090
STRANGER = "stranger"
DOORS = [
    ("prefill", HTTP),
    ("prefill", DRAIN),
    ("prefill", PEER),
    ("prefill", DATA),
    ("decode", HTTP),
    ("decode", DRAIN),
    ("operator", HTTP),
    ("operator", CONTROL),
]

# Its firewall alone.
ROUTER = [
    "kube-router",
    "--run-firewall=true",
    "--run-router=false",
    "--run-service-proxy=false",
    "--run-loadbalancer=false",
    "--enable-ipv6=false",
    "--health-port=0",
]

# A moment in the past will do.
NOW = "2026-01-01T00:00:00Z"

# Whether a TCP connection comes about. The command ends with 0 only where it does.
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2).close()"


def certify(journey: Journey) -> None:
    """cert-manager issues the agents' certificates and renews them in pods that go on, and no request is lost"""
    definitions = run(str(ROOT / "scripts" / "definitions"), "cert-manager").strip()
    kubectl("apply", "--server-side", f"--filename={definitions}")
    for kind in ("certificates", "issuers"):
        watch(f"{kind} are served", keda.is_established, "crd", f"{kind}.cert-manager.io")
    one = f"certManager.certificates[0].namespace={NAMESPACE},certManager.certificates[0].deployment={journey.name}"
    run("helm", "upgrade", "lynx", str(CHART), "--namespace", SYSTEM, "--reuse-values", "--wait", TIMEOUT, f"--set={one}")
    secret = f"{journey.name}-cert"
    with running("cert-manager"), Load(journey.url, clients=2, tokens=16, words=300):
        watch("a certificate is issued", is_issued, "certificates.cert-manager.io", secret)
        journey.patch({"transfer": {"tls": {"mode": "Secret", "secretName": secret}}})
        journey.watch("a rollout goes on", lambda seen: "rollout" in seen["status"])
        journey.watch("it is over", steps.rolled)
        for role in ("prefill", "decode"):
            steps.await_pods(journey, role, 1)
        before = certificates(journey)
        if not all(before.values()):
            raise Unmet(f"Pods without certificates: {before}")
        # As cmctl does it.
        due = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "", "lastTransitionTime": NOW}
        status = json.dumps({"status": {"conditions": [due]}})
        kubectl("patch", "certificates.cert-manager.io", secret, "--subresource=status", "--type=merge", f"--patch={status}")
        look(lambda: all(end > before.get(pod, end) for pod, end in certificates(journey).items()), "other certificates")
        journey.compare(journey.wide)
    after = certificates(journey)
    if before.keys() != after.keys():
        raise Unmet(f"Before: {before}, after: {after}")


def is_issued(certificate: Object) -> bool:
    return condition(certificate, "Ready").get("status") == "True"


def isolate(journey: Journey) -> None:
    """a stranger reaches HTTP alone once policies are enforced, and rollouts, answers and reports go on"""
    stranger()
    expected = {(STRANGER, target, port): port == HTTP for target, port in DOORS}
    for target, port in (("prefill", PEER), ("prefill", DATA), ("operator", CONTROL)):
        expected["decode", target, port] = True
    everything = dict.fromkeys(expected, True)
    look(lambda: seen(journey, everything) == everything, "without a firewall everybody reaches everything")
    node = get("nodes")["items"][0]["metadata"]["name"]
    with running(*ROUTER, f"--kubeconfig={os.environ['KUBECONFIG']}", f"--hostname-override={node}"):
        look(lambda: seen(journey, expected) == expected, f"who reaches what is as policies say: {expected}")
        # A new decode pod joins the operator and links to a prefill pod, or the old one would never go.
        steps.roll_one(journey)
        journey.compare(journey.wide)
        look(lambda: seen(journey, expected) == expected, "it is so for the new pod too")


def stranger() -> None:
    """A pod that belongs to nobody."""
    images = get("nodes")["items"][0]["status"]["images"]
    pause = next(name for image in images for name in image["names"] if "/pause:" in name)
    container = {"name": "idle", "image": pause, "imagePullPolicy": "Never"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": STRANGER, "namespace": NAMESPACE}, "spec": spec})
    look(lambda: get("pods", STRANGER)["status"].get("podIP"), "the stranger has an address")


def seen(journey: Journey, asked: dict[tuple[str, str, int], bool]) -> dict[tuple[str, str, int], bool]:
    """Of each way that is asked about, whether a connection comes about."""
    pods = {role: journey.pods(role)[0] for role in ("prefill", "decode")}
    pods["operator"] = get("pods", f"--namespace={SYSTEM}", "--selector=app.kubernetes.io/component=operator")["items"][0]
    pods[STRANGER] = get("pods", STRANGER)
    return {(source, target, port): reaches(pods[source], pods[target], port) for source, target, port in asked}


def reaches(source: Object, target: Object, port: int) -> bool:
    name = f"{source['metadata']['namespace']}/{source['metadata']['name']}"
    command = [str(NODE), "enter", name, "python3", "-c", CONNECT, target["status"]["podIP"], str(port)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


STEPS = [steps.install, steps.deploy, steps.answer, keda.follow, certify, isolate]
