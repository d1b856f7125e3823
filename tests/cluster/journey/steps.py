"""The steps, in order. Each is a function whose first line is what it shows; what it needs from earlier ones is in `Journey`."""

from __future__ import annotations

import copy
import json
import secrets
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import jaeger
from .client import Load, ask
from .kubectl import Object, Unmet, apply, condition, get, kubectl, read, refusal, run, watch

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "lynx"
EXAMPLE = ROOT / "examples" / "embedded-cpu.yaml"
NODE = ROOT / "tests" / "cluster" / "node"

NAMESPACE = "default"
SYSTEM = "lynx-system"
LYNX = "lynxdeployments"

# A link that the codec's bits matter on, while requests on it still end in seconds.
NARROW = "50mbit"


@dataclass
class Journey:
    """What one step leaves for the next."""

    model: Path
    address: str
    question: str
    answer: str
    tokens: int
    deployment: Object = field(default_factory=dict)
    url: str = ""
    trace: str = ""

    @property
    def name(self) -> str:
        return self.deployment["metadata"]["name"]

    def pods(self, role: str) -> list[Object]:
        return get("pods", f"--selector=lynx.dev/deployment={self.name},lynx.dev/role={role}")["items"]

    def pod(self, role: str) -> str:
        (only,) = self.pods(role)
        return only["metadata"]["name"]

    def watch(self, what: str, reached: Callable[[Object], bool]) -> Object:
        return watch(what, reached, LYNX, self.name)

    def patch(self, spec: Object) -> None:
        kubectl("patch", LYNX, self.name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")


def install(journey: Journey) -> None:
    """helm install brings the operator up"""
    run("helm", "install", "lynx", str(CHART), "--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout=3m")


def deploy(journey: Journey) -> None:
    """the example's pods become ready"""
    manifest = read(str(EXAMPLE))
    manifest["spec"]["model"]["source"] = {"hostPath": {"path": str(journey.model)}}
    manifest["spec"]["observability"] = {"otlp": {"endpoint": f"http://{journey.address}:{jaeger.OTLP_GRPC}"}}
    journey.deployment = manifest
    apply(manifest)
    journey.watch("one pod of each role is ready", lambda seen: available(seen) and ready(seen) == (1, 1))
    service = get("services", journey.name)
    journey.url = f"http://{service['spec']['clusterIP']}"


def answer(journey: Journey) -> None:
    """a completion through the Service is what the model alone says"""
    journey.trace = secrets.token_hex(16)
    text = ask(journey.url, journey.question, journey.tokens, journey.trace)
    if text.strip() != journey.answer.strip():
        raise Unmet(f"The Service answers {text!r}, the model alone {journey.answer!r}")


def trace(journey: Journey) -> None:
    """its spans are one trace in Jaeger, from both agents and both engines"""
    decode, prefill = journey.pod("decode"), journey.pod("prefill")
    wanted = {(decode, name) for name in ("request", "queue", "transfer", "anchor", "residual", "verify")}
    wanted |= {(prefill, name) for name in ("transfer", "prefill", "split")}
    jaeger.spans(journey.address, journey.trace, {(pod, f"lynx.{name}") for pod, name in wanted})


def scale(journey: Journey) -> None:
    """kubectl scale makes two decode pods and one again, and no request is lost"""
    with Load(journey.url, clients=2, tokens=16, words=300):
        kubectl("scale", f"{LYNX}/{journey.name}", "--replicas=2")
        journey.watch("two decode pods are ready", lambda seen: ready(seen) == (1, 2))
        kubectl("scale", f"{LYNX}/{journey.name}", "--replicas=1")
        journey.watch("one decode pod is left", lambda seen: pools(seen, "replicas") == (1, 1))
    await_pods(journey, "decode", 1)


def autoscale(journey: Journey) -> None:
    """load makes autoscaling add a decode pod, and silence removes it"""
    target = {"runningRequests": 1}
    autoscaling = {
        "minReplicas": 1,
        "maxReplicas": 2,
        "target": target,
        "scaleUpStabilization": "1s",
        "scaleDownStabilization": "5s",
    }
    journey.patch({"decode": {"autoscaling": autoscaling}})
    with Load(journey.url, clients=4, tokens=64, words=300):
        journey.watch("autoscaling made two decode pods", lambda seen: ready(seen) == (1, 2))
    journey.watch("one decode pod is left", lambda seen: pools(seen, "replicas") == (1, 1))
    journey.patch({"decode": {"autoscaling": None, "replicas": 1}})
    await_pods(journey, "decode", 1)


def throttle(journey: Journey) -> None:
    """a narrower link gets a narrower anchor"""
    before = anchor(get(LYNX, journey.name))
    pod = f"{NAMESPACE}/{journey.pod('decode')}"
    run(str(NODE), "throttle", pod, NARROW)
    try:
        with Load(journey.url, clients=1, tokens=16, words=900):
            journey.watch(f"the anchor is narrower than {before} bits", lambda seen: anchor(seen) < before)
    finally:
        run(str(NODE), "throttle", pod, "none")


def refuse(journey: Journey) -> None:
    """what can't be is refused by name"""
    spec = journey.deployment["spec"]
    autoscaling = {"minReplicas": 3, "maxReplicas": 2, "target": {"runningRequests": 1}}
    wrong: list[tuple[str, Object, str]] = [
        ("x" * 41, {}, "the name is too long"),
        ("a", {"decode": {**spec.get("decode", {}), "autoscaling": autoscaling}}, "minReplicas is more than"),
        ("a", {"transfer": {"anchor": {"mode": "Adaptive", "minBits": 6, "maxBits": 2}}}, "minBits"),
        ("a", {"transfer": {"anchor": {"mode": "Fixed", "bits": 17}}}, "bits"),
        ("a", {"decoding": {}}, 'unknown field "spec.decoding"'),
    ]
    for name, change, words in wrong:
        manifest = copy.deepcopy(journey.deployment)
        manifest["metadata"]["name"] = name
        manifest["spec"].update(change)
        complaint = refusal(manifest)
        if words not in complaint:
            raise Unmet(f"The refusal does not say {words!r}: {complaint}")


def upgrade(journey: Journey) -> None:
    """helm upgrade with the same chart changes nothing that runs"""
    before = generations()
    run("helm", "upgrade", "lynx", str(CHART), "--namespace", SYSTEM, "--wait", "--timeout=3m")
    after = generations()
    if before != after:
        raise Unmet(f"Changed: {sorted(before.items() ^ after.items())}")


def delete(journey: Journey) -> None:
    """kubectl delete leaves nothing of the deployment"""
    kubectl("delete", LYNX, journey.name, "--wait", "--timeout=2m")
    await_nothing(NAMESPACE)


def uninstall(journey: Journey) -> None:
    """helm uninstall leaves nothing of the operator"""
    run("helm", "uninstall", "lynx", "--namespace", SYSTEM, "--wait", "--timeout=2m")
    await_nothing(SYSTEM)
    left = kubectl(
        "get",
        "clusterroles,clusterrolebindings",
        "--selector=app.kubernetes.io/instance=lynx",
        "--output=name",
    )
    if left:
        raise Unmet(f"Left in the cluster: {left.split()}")


STEPS = [install, deploy, answer, trace, scale, autoscale, throttle, refuse, upgrade, delete, uninstall]


def available(seen: Object) -> bool:
    return condition(seen, "Available").get("status") == "True"


def pools(seen: Object, what: str) -> tuple[int, int]:
    status = seen.get("status", {})
    return status.get("prefill", {}).get(what, 0), status.get("decode", {}).get(what, 0)


def ready(seen: Object) -> tuple[int, int]:
    return pools(seen, "ready")


def anchor(seen: Object) -> float:
    """The anchor's mean width in bits."""
    return float(seen["status"]["anchor"]["bits"])


def await_pods(journey: Journey, role: str, count: int) -> None:
    """Waits until the pods that were drained are gone, not only told to go."""
    going = [pod["metadata"]["name"] for pod in journey.pods(role) if "deletionTimestamp" in pod["metadata"]]
    if going:
        kubectl("wait", "--for=delete", *(f"pod/{name}" for name in going), "--timeout=2m")
    left = [pod["metadata"]["name"] for pod in journey.pods(role)]
    if len(left) != count:
        raise Unmet(f"There should be {count} {role} pods: {left}")


def generations() -> dict[str, str]:
    """What changes when something that runs is changed."""
    found = {}
    for namespace in (NAMESPACE, SYSTEM):
        for item in get("deployments,pods", f"--namespace={namespace}")["items"]:
            metadata = item["metadata"]
            found[f"{item['kind']} {metadata['name']}"] = f"{metadata['uid']} {metadata.get('generation')}"
    return found


# What Kubernetes itself keeps in a namespace.
KEPT = {"configmap/kube-root-ca.crt", "serviceaccount/default", "service/kubernetes", "endpoints/kubernetes"}
KEPT_KINDS = {"event", "event.events.k8s.io", "endpointslice.discovery.k8s.io/kubernetes"}


def await_nothing(namespace: str) -> None:
    """Waits until whatever was made in a namespace is gone."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    listed = kubectl("get", ",".join(kinds), f"--namespace={namespace}", "--output=name", "--ignore-not-found").split()
    going = [each for each in listed if each not in KEPT and not any(each.startswith(kind) for kind in KEPT_KINDS)]
    if going:
        command = ["kubectl", "wait", "--for=delete", *going, f"--namespace={namespace}", "--timeout=2m"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise Unmet(f"Left in {namespace}: {going}")
