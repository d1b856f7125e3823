"""Jaeger: the spans that pods send, and what becomes of them."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .kubectl import Unmet, look

CONFIG = Path(__file__).parent.parent / "jaeger.yaml"
# OpenTelemetry's own port.
OTLP_GRPC = 4317
QUERY = 16686
HEALTH = 13133


@contextmanager
def running(address: str, log: Path) -> Iterator[None]:
    """Jaeger at this address, as long as the context lasts."""
    ports = {"OTLP_GRPC": OTLP_GRPC, "OTLP_HTTP": 4318, "QUERY": QUERY, "QUERY_GRPC": 16685, "HEALTH": HEALTH}
    environment = {**os.environ, "ADDRESS": address, **{name: str(port) for name, port in ports.items()}}
    with open(log, "wb") as out:
        child = subprocess.Popen(["jaeger", "--config", str(CONFIG)], env=environment, stdout=out, stderr=out)
    try:
        look(lambda: page(f"http://{address}:{HEALTH}/status"), f"Jaeger is ready: see {log}")
        yield
    finally:
        child.kill()
        child.wait()


def spans(address: str, trace: str, wanted: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Process and name of every span of a trace, in the order of their starts, once `wanted` are among them.

    As in ("lynx-agent decode", "lynx.request"). Raises Unmet if they do not come, or if one of them hangs from a span that
    is not there.
    """
    found: list[tuple[str, str]] = []

    def complete() -> bool:
        nonlocal found
        reply = page(f"http://{address}:{QUERY}/api/traces/{trace}")
        found = joined(json.loads(reply)) if reply else []
        return wanted <= set(found)

    try:
        look(complete, "")
    except Unmet:
        lacks, has = sorted(wanted - set(found)), sorted(set(found))
        raise Unmet(f"The trace {trace} lacks {lacks}; it has {has}") from None
    return found


def joined(reply: dict) -> list[tuple[str, str]]:
    """The spans of the one trace in Jaeger's reply. All but the client's own parent must be there."""
    (trace,) = reply["data"]
    known = {span["spanID"] for span in trace["spans"]}
    parents = {reference["spanID"] for reference in references(trace, "CHILD_OF")}
    if len(parents - known) > 1:
        return []
    processes = {key: name_of(process) for key, process in trace["processes"].items()}
    in_order = sorted(trace["spans"], key=lambda span: span["startTime"])
    return [(processes[span["processID"]], span["operationName"]) for span in in_order]


def linked(address: str, trace: str, service: str) -> None:
    """Returns once a span of the trace is linked to a span of this service. Raises Unmet if none is."""

    def found(id: str) -> dict | None:
        reply = page(f"http://{address}:{QUERY}/api/traces/{id}")
        return json.loads(reply)["data"][0] if reply else None

    def reached() -> bool:
        links = references(found(trace) or {"spans": []}, "FOLLOWS_FROM")
        others = filter(None, (found(link["traceID"]) for link in links))
        return any(process["serviceName"] == service for other in others for process in other["processes"].values())

    look(reached, f"a span of the trace {trace} is linked to one of {service}'s")


def references(trace: dict, kind: str) -> list[dict]:
    """What the spans of a trace refer to in this way."""
    return [one for span in trace["spans"] for one in span["references"] if one["refType"] == kind]


def name_of(process: dict) -> str:
    tags = {tag["key"]: tag["value"] for tag in process["tags"]}
    return f"{process['serviceName']} {tags.get('lynx.role', '')}"


def page(url: str) -> bytes:
    with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5) as reply:
        return reply.read()
    return b""
