"""The steps, in order. What each shows is its first line; what it needs from earlier ones is in `Journey`."""

from __future__ import annotations

import base64
import copy
import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import jaeger
from .client import Load, ask
from .kubectl import PATIENCE_S, Object, Unmet, apply, condition, get, kubectl, look, read, refusal, run, watch

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "lynx"
EXAMPLE = ROOT / "examples" / "embedded-cpu.yaml"
NODE = ROOT / "tests" / "cluster" / "node"

NAMESPACE = "default"
SYSTEM = "lynx-system"
# Where agents have their metrics.
METRICS = 8080
LYNX = "lynxdeployments"
# Of kubectl and helm.
TIMEOUT = f"--timeout={PATIENCE_S}s"

# A link on which a prompt takes longer to arrive than to be computed, even on a slow machine.
NARROW = "5mbit"
# More than that link carries, however it is measured, and less than any other.
NARROW_BITS_PER_SECOND = 8_000_000
# Far below what a pair of virtual interfaces carries, and above what a prefill makes on such a machine.
WIDE_BITS_PER_SECOND = 100_000_000
WIDE_ANCHOR = 3
# The anchor's width follows a link in minutes.
THROTTLE_PATIENCE_S = 600


@dataclass(frozen=True)
class Exchange:
    """A question, and what the model alone answers to it in so many tokens."""

    question: str
    tokens: int
    answer: str


@dataclass
class Journey:
    """What one step leaves for the next."""

    model: Path
    address: str
    wide: Exchange
    narrow: Exchange
    deployment: Object = field(default_factory=dict)
    url: str = ""
    trace: str = ""
    # On the wide link.
    anchor: float = 0

    @property
    def name(self) -> str:
        return self.deployment["metadata"]["name"]

    def pods(self, role: str) -> list[Object]:
        return get("pods", f"--selector=lynx.dev/deployment={self.name},lynx.dev/role={role}")["items"]

    def pod(self, role: str) -> str:
        (only,) = self.pods(role)
        return only["metadata"]["name"]

    def watch(self, what: str, reached: Callable[[Object], bool], patience: float = PATIENCE_S) -> Object:
        return watch(what, reached, LYNX, self.name, patience)

    def compare(self, exchange: Exchange) -> None:
        """Asks the Service. Raises Unmet if it answers something else than the model alone."""
        text = ask(self.url, exchange.question, exchange.tokens, self.trace)
        if text.strip() != exchange.answer.strip():
            raise Unmet(f"The Service answers {text!r}, the model alone {exchange.answer!r}")

    @contextmanager
    def link(self, rate: str) -> Iterator[None]:
        """Makes the decode pod's link so narrow, as long as the context lasts."""
        pod = f"{NAMESPACE}/{self.pod('decode')}"
        run(str(NODE), "throttle", pod, rate)
        try:
            yield
        finally:
            run(str(NODE), "throttle", pod, "none")

    def patch(self, spec: Object) -> None:
        kubectl("patch", LYNX, self.name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")


def install(journey: Journey) -> None:
    """helm install brings the operator up"""
    spans = f"--set=otlpEndpoint=http://{journey.address}:{jaeger.OTLP_GRPC}"
    run("helm", "install", "lynx", str(CHART), "--namespace", SYSTEM, "--create-namespace", "--wait", TIMEOUT, spans)
    run("helm", "test", "lynx", "--namespace", SYSTEM, TIMEOUT)


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
    # A pod is ready before kube-proxy knows of it.
    look(lambda: jaeger.page(f"{journey.url}/v1/models"), "the Service answers")


def answer(journey: Journey) -> None:
    """a completion through the Service is what the model alone says"""
    journey.compare(journey.wide)


def measure(journey: Journey) -> None:
    """the status says that the link is wide, and the anchor is not the narrowest"""

    def suits(seen: Object) -> bool:
        rate = seen["status"].get("link", {}).get("rateBitsPerSecond", 0)
        return rate > WIDE_BITS_PER_SECOND and anchor(seen) >= WIDE_ANCHOR

    with Load(journey.url, clients=1, tokens=16, words=300):
        journey.anchor = anchor(journey.watch("the link is measured, and the anchor suits it", suits))


def draft(journey: Journey) -> None:
    """so it is where a narrow link makes the engine draft on the anchor"""
    with journey.link(NARROW):
        journey.trace = secrets.token_hex(16)
        journey.compare(journey.narrow)


def trace(journey: Journey) -> None:
    """its spans are one trace in Jaeger, from both agents and both engines, with a link to the operator's look"""
    wanted = {
        ("lynx-agent decode", "lynx.request"),
        ("lynx-agent decode", "lynx.transfer"),
        ("lynx-agent decode", "lynx.anchor"),
        ("lynx-agent decode", "lynx.residual"),
        ("lynx-agent prefill", "lynx.transfer"),
        ("lynx-agent prefill", "lynx.split"),
        ("lynx-engine prefill", "lynx.prefill"),
        ("lynx-engine decode", "lynx.draft"),
        ("lynx-engine decode", "lynx.verify"),
    }
    jaeger.spans(journey.address, journey.trace, wanted)
    jaeger.linked(journey.address, journey.trace, "lynx-operator")


def throttle(journey: Journey) -> None:
    """the status says that the link is narrow, and the anchor is narrower than on the wide one"""

    def follows(seen: Object) -> bool:
        return anchor(seen) < journey.anchor and seen["status"]["link"]["rateBitsPerSecond"] < NARROW_BITS_PER_SECOND

    # Each request takes ten seconds of that link, and the anchor changes once a minute at most.
    with journey.link(NARROW), Load(journey.url, clients=1, tokens=16, words=300):
        journey.watch(f"the anchor is narrower than {journey.anchor} bits", follows, THROTTLE_PATIENCE_S)


def scale(journey: Journey) -> None:
    """kubectl scale makes two decode pods and one again, and no request is lost"""
    with Load(journey.url, clients=2, tokens=16, words=300):
        kubectl("scale", f"{LYNX}/{journey.name}", "--replicas=2")
        journey.watch("two decode pods are ready", lambda seen: ready(seen) == (1, 2))
        kubectl("scale", f"{LYNX}/{journey.name}", "--replicas=1")
        journey.watch("one decode pod is left", lambda seen: pools(seen, "replicas") == (1, 1))
    await_pods(journey, "decode", 1)


def roll(journey: Journey) -> None:
    """engines with another environment take over while the operator starts again, and no request is lost"""
    before = pods_by_role(journey)
    hash_before = get(LYNX, journey.name)["status"]["generationHash"]
    with Load(journey.url, clients=2, tokens=16, words=300):
        journey.patch({"engine": {"env": [{"name": "LYNX_ROLLED", "value": "once"}]}})
        journey.watch("a rollout goes on", lambda seen: "rollout" in seen["status"])
        restart_operator()
        journey.watch("it is over", lambda seen: rolled(seen) and seen["status"]["generationHash"] != hash_before)
    if any(before[role] & pods_by_role(journey)[role] for role in before):
        raise Unmet(f"Pods of the old generation are left: {before}, {pods_by_role(journey)}")


def encrypt(journey: Journey) -> None:
    """agents with certificates take over from agents in clear, and no request is lost"""
    with Load(journey.url, clients=2, tokens=16, words=300):
        journey.patch({"transfer": {"tls": {"mode": "OperatorCA"}}})
        journey.watch("a rollout goes on", lambda seen: "rollout" in seen["status"])
        journey.watch("it is over", rolled)


def renew(journey: Journey) -> None:
    """certificates that have aged are renewed in pods that go on, and no request is lost"""
    for role in ("prefill", "decode"):
        await_pods(journey, role, 1)
    before = certificates(journey)
    if not all(before.values()):
        raise Unmet(f"Pods without certificates: {before}")
    with Load(journey.url, clients=2, tokens=16, words=300):
        name = f"{journey.name}-authority"
        state = json.loads(base64.b64decode(get("secrets", name)["data"]["state.json"]))
        state["leaf"]["from"] = 0
        data = {"state.json": base64.b64encode(json.dumps(state).encode()).decode()}
        kubectl("patch", "secrets", name, "--type=merge", f"--patch={json.dumps({'data': data})}")
        # What it has read it takes to be so for a while.
        restart_operator()
        look(lambda: all(end > before.get(pod, end) for pod, end in certificates(journey).items()), "other certificates")
        journey.compare(journey.wide)
    after = certificates(journey)
    if before.keys() != after.keys():
        raise Unmet(f"Before: {before}, after: {after}")


def roll_one(journey: Journey) -> None:
    """a change of the decode pool alone replaces the decode pod alone, and no request is lost"""
    before = pods_by_role(journey)
    with Load(journey.url, clients=2, tokens=16, words=300):
        journey.patch({"decode": {"template": {"annotations": {"rolled": "once"}}}})
        journey.watch("a rollout goes on", lambda seen: "rollout" in seen["status"])
        journey.watch("it is over", rolled)
    after = pods_by_role(journey)
    if before["prefill"] != after["prefill"] or before["decode"] & after["decode"]:
        raise Unmet(f"Before: {before}, after: {after}")


def stall(journey: Journey) -> None:
    """an image that does not exist is told, the old pods go on answering, and the change is taken back"""
    before = pods_by_role(journey)
    with Load(journey.url, clients=1, tokens=16, words=300):
        journey.patch({"engine": {"image": "lynx.dev/no-such-engine:1"}, "rollout": {"progressDeadline": "15s"}})

        def stalled(seen: Object) -> bool:
            progressing = condition(seen, "Progressing")
            return progressing.get("reason") == "RolloutStalled" and "Image" in progressing["message"]

        journey.watch("the rollout is called stalled, because of the image", stalled)
        journey.patch({"engine": {"image": None}, "rollout": None})
        journey.watch("it is taken back", rolled)
    if before != pods_by_role(journey):
        raise Unmet(f"Before: {before}, after: {pods_by_role(journey)}")


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


def misfit(journey: Journey) -> None:
    """an engine that does not fit is refused, which the status says, and nothing crashes"""
    manifest = copy.deepcopy(journey.deployment)
    name = manifest["metadata"]["name"] = f"{journey.name}-misfit"
    # Both pools get prefill engines, which the decode pool's agents don't take.
    manifest["spec"]["engine"] = {"type": "Embedded", "args": ["--role", "prefill"]}
    apply(manifest)
    what = "the engine is refused"
    watch(what, lambda seen: condition(seen, "Degraded").get("reason") == "EngineRefused", LYNX, name)
    for pod in get("pods", f"--selector=lynx.dev/deployment={name}")["items"]:
        status = pod["status"]
        containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        # The pool whose engine isn't the refused one may still be starting.
        ended = [each["name"] for each in containers if each["restartCount"] or "terminated" in each["state"]]
        if ended:
            raise Unmet(f"Ended in {pod['metadata']['name']}: {ended}")
    kubectl("delete", LYNX, name, "--wait", TIMEOUT)
    kubectl("wait", "--for=delete", "pods", f"--selector=lynx.dev/deployment={name}", TIMEOUT)


def upgrade(journey: Journey) -> None:
    """helm upgrade with the same chart changes nothing that runs"""
    before = generations()
    run("helm", "upgrade", "lynx", str(CHART), "--namespace", SYSTEM, "--wait", TIMEOUT)
    after = generations()
    if before != after:
        raise Unmet(f"Changed: {sorted(before.items() ^ after.items())}")


def delete(journey: Journey) -> None:
    """kubectl delete leaves nothing of the deployment"""
    kubectl("delete", LYNX, journey.name, "--wait", TIMEOUT)
    await_nothing(NAMESPACE)


def uninstall(journey: Journey) -> None:
    """helm uninstall leaves nothing of the operator"""
    run("helm", "uninstall", "lynx", "--namespace", SYSTEM, "--wait", TIMEOUT)
    await_nothing(SYSTEM)
    left = kubectl(
        "get",
        "clusterroles,clusterrolebindings",
        "--selector=app.kubernetes.io/instance=lynx",
        "--output=name",
    )
    if left:
        raise Unmet(f"Left in the cluster: {left.split()}")


STEPS = [
    install,
    deploy,
    answer,
    measure,
    draft,
    trace,
    throttle,
    scale,
    roll,
    encrypt,
    renew,
    roll_one,
    stall,
    autoscale,
    refuse,
    misfit,
    upgrade,
    delete,
    uninstall,
]


def available(seen: Object) -> bool:
    return condition(seen, "Available").get("status") == "True"


def rolled(seen: Object) -> bool:
    """All pods are of the newest revision, and ready."""
    status = seen["status"]
    newest = status["observedGeneration"] == seen["metadata"]["generation"] and "rollout" not in status
    return newest and condition(seen, "Progressing").get("reason") == "Complete"


def restart_operator() -> None:
    kubectl("delete", "pods", f"--namespace={SYSTEM}", "--selector=app.kubernetes.io/component=operator", "--wait=false")


def certificates(journey: Journey) -> dict[str, float]:
    """When each pod's certificate ends, as its agent says; 0 where it has none, or says nothing."""
    series = "lynx_tls_certificate_expiry_timestamp_seconds"
    ends = {}
    for pod in (*journey.pods("prefill"), *journey.pods("decode")):
        text = jaeger.page(f"http://{pod['status']['podIP']}:{METRICS}/metrics").decode()
        values = (float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(series))
        ends[pod["metadata"]["name"]] = next(values, 0.0)
    return ends


def pods_by_role(journey: Journey) -> dict[str, set[str]]:
    """The names of the pods that are to stay."""
    return {
        role: {pod["metadata"]["name"] for pod in journey.pods(role) if "deletionTimestamp" not in pod["metadata"]}
        for role in ("prefill", "decode")
    }


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
    look(lambda: len(journey.pods(role)) == count, f"there are {count} {role} pods")


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
        command = ["kubectl", "wait", "--for=delete", *going, f"--namespace={namespace}", TIMEOUT]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise Unmet(f"Left in {namespace}: {going}")
