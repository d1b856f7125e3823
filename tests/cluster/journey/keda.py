"""KEDA: its operator, the adapter that autoscalers ask, and a Prometheus that has the agents' figures for it."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from parts import pki
from parts.layout import Layout

from . import jaeger, steps
from .client import Load
from .kubectl import Object, Unmet, apply, condition, kubectl, look, run, watch
from .programs import cluster, running
from .steps import METRICS, ROOT, Journey

EXAMPLE = ROOT / "examples" / "keda.yaml"
# As KEDA's own manifests have them.
NAMESPACE = "keda"
SERVICE = "keda-metrics-apiserver"
FIGURES = "v1beta1.external.metrics.k8s.io"
# In the node's network, where others have 6443 and 8080.
PROMETHEUS, OPERATOR, ADAPTER, ADAPTERS_OWN = 9090, 9666, 6444, 8082
# What the operator would do if it could: another number than KEDA ever asks for.
OWN = {"minReplicas": 3, "maxReplicas": 3, "target": {"runningRequests": 1}}
# As which it would write that.
AUTOSCALER = "lynx-autoscaler"
# Between two looks at which pods there are.
DISCOVERY_S = 1.0


def follow(journey: Journey) -> None:
    """KEDA adds a decode pod under load and removes it, the operator says whose that is, and no request is lost"""
    layout = Layout.load(cluster())
    register(layout)
    with ExitStack() as programs:
        for program in (prometheus(journey), operator(layout), adapter(layout)):
            programs.enter_context(program)
        watch("KEDA serves figures", is_available, "apiservices", FIGURES)
        scaler = example(journey)
        apply(scaler)
        name = scaler["metadata"]["name"]
        watch("KEDA has made an autoscaler, which has a figure", is_active, "hpa", f"keda-hpa-{name}")
        journey.patch({"decode": {"autoscaling": OWN}})
        journey.watch("the operator says who scales", lambda seen: f"ScaledObject {name} " in limit(seen))
        with Load(journey.url, clients=6, tokens=64, words=300):
            journey.watch("KEDA has made two decode pods", lambda seen: steps.ready(seen) == (1, 2))
        with Load(journey.url, clients=1, tokens=16, words=300):
            journey.watch("one decode pod is left", lambda seen: steps.pools(seen, "replicas") == (1, 1))
            steps.await_pods(journey, "decode", 1)
        managed = kubectl("get", steps.LYNX, journey.name, "--show-managed-fields", "--output=json")
        if AUTOSCALER in {each["manager"] for each in json.loads(managed)["metadata"]["managedFields"]}:
            raise Unmet("The operator has scaled too")
        # In this order, or the operator would do what it could.
        journey.patch({"decode": {"autoscaling": None}})
        kubectl("delete", "scaledobjects", name, "--wait", steps.TIMEOUT)
        kubectl("delete", "apiservices", FIGURES)


def register(layout: Layout) -> None:
    """KEDA's definitions, its rights and its place among the cluster's APIs, as it is installed."""
    definitions = Path(run(str(ROOT / "scripts" / "definitions"), "keda").strip())
    kubectl("apply", "--server-side", f"--filename={definitions}")
    for kind in ("scaledobjects", "scaledjobs", "triggerauthentications", "clustertriggerauthentications"):
        watch(f"{kind} are served", is_established, "crd", f"{kind}.keda.sh")
    for kind in ("cloudeventsources", "clustercloudeventsources"):
        watch(f"{kind} are served", is_established, "crd", f"{kind}.eventing.keda.sh")
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    outside = {"type": "ExternalName", "externalName": layout.address}
    service = {"name": SERVICE, "namespace": NAMESPACE}
    apply({"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": outside})
    adapters = definitions.parents[1] / "metrics-server"
    for part in ("role", "role_binding", "api_service"):
        kubectl("apply", f"--filename={adapters / part}.yaml")
    trusted = base64.b64encode(layout.pki("ca.crt").read_bytes()).decode()
    change = {"spec": {"caBundle": trusted, "service": {**service, "port": ADAPTER}}}
    kubectl("patch", "apiservices", FIGURES, "--type=merge", f"--patch={json.dumps(change)}")
    certify(layout)


def certify(layout: Layout) -> None:
    """One certificate for both programs: each calls the other, or is called by the API server."""
    names = f"DNS:{SERVICE}.{NAMESPACE}.svc,IP:{layout.address}"
    pki.certificate(layout, "keda", "/CN=keda", ["extendedKeyUsage=serverAuth,clientAuth", f"subjectAltName={names}"])
    folder = layout.pki("keda")
    folder.mkdir()
    for source, target in (("ca.crt", "ca.crt"), ("keda.crt", "tls.crt"), ("keda.key", "tls.key")):
        shutil.copy(layout.pki(source), folder / target)


def operator(layout: Layout) -> AbstractContextManager[None]:
    return running(
        "keda",
        f"--cert-dir={layout.pki('keda')}",
        f"--metrics-service-bind-address={layout.address}:{OPERATOR}",
        "--enable-prometheus-metrics=false",
        "--health-probe-bind-address=0",
        WATCH_NAMESPACE="",
        KEDA_CLUSTER_OBJECT_NAMESPACE=NAMESPACE,
    )


def adapter(layout: Layout) -> AbstractContextManager[None]:
    folder = layout.pki("keda")
    asks = ["kubeconfig", "lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
    return running(
        "keda-adapter",
        f"--secure-port={ADAPTER}",
        f"--port={ADAPTERS_OWN}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        f"--metrics-service-address={layout.address}:{OPERATOR}",
        *(f"--{one}={layout.kubeconfig}" for one in asks),
        WATCH_NAMESPACE="",
        KEDA_CLUSTER_OBJECT_NAMESPACE=NAMESPACE,
    )


@contextmanager
def prometheus(journey: Journey) -> Iterator[None]:
    """Scrapes the deployment's pods, as long as the context lasts."""
    folder = cluster() / "prometheus"
    folder.mkdir()
    pods = folder / "pods.json"
    job = {"job_name": "lynx", "file_sd_configs": [{"files": [str(pods)]}]}
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    # JSON is YAML.
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    arguments = [
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder}",
        f"--web.listen-address={journey.address}:{PROMETHEUS}",
    ]
    with discovery(journey, pods), running("prometheus", *arguments):
        look(lambda: jaeger.page(f"http://{journey.address}:{PROMETHEUS}/-/ready"), "Prometheus is ready")
        yield


@contextmanager
def discovery(journey: Journey, file: Path) -> Iterator[None]:
    """Has the file say which pods there are, as long as the context lasts."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(DISCOVERY_S):
            with suppress(Unmet):
                pods = [*journey.pods("prefill"), *journey.pods("decode")]
                partial = file.with_suffix(".partial")
                partial.write_text(json.dumps([target(pod) for pod in pods if pod["status"].get("podIP")]))
                partial.rename(file)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def target(pod: Object) -> Object:
    """With the label that a PodMonitor gives it."""
    return {"targets": [f"{pod['status']['podIP']}:{METRICS}"], "labels": {"pod": pod["metadata"]["name"]}}


def example(journey: Journey) -> Object:
    """The example's ScaledObject for this deployment, on a machine with room for two decode pods, and with less patience."""
    text = EXAMPLE.read_text().split("\n---\n")[1].replace("smollm2-keda", journey.name)
    command = ["create", "--dry-run=client", "--validate=false", "--output=json", "--filename=-"]
    scaler = json.loads(kubectl(*command, text=text))
    spec = scaler["spec"]
    spec["maxReplicaCount"] = 2
    spec["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}}}}
    spec["triggers"][0]["metadata"]["serverAddress"] = f"http://{journey.address}:{PROMETHEUS}"
    return scaler


def is_established(definition: Object) -> bool:
    return condition(definition, "Established").get("status") == "True"


def is_available(api: Object) -> bool:
    return condition(api, "Available").get("status") == "True"


def is_active(scaler: Object) -> bool:
    return condition(scaler, "ScalingActive").get("status") == "True"


def limit(seen: Object) -> str:
    """Who else scales, as the status says."""
    limited = condition(seen, "ScalingLimited")
    return limited["message"] if limited.get("reason") == "AnotherAutoscaler" else ""
