"""What there is to know about a cluster in which something went wrong."""

from __future__ import annotations

import subprocess

NAMESPACED = ["pods", "deployments", "services", "endpointslices"]


def write(namespaces: list[str], log_lines: int) -> None:
    """Prints the state of these namespaces: objects, events, logs. Whatever can't be had is left out."""
    for namespace in namespaces:
        show("get", ",".join(NAMESPACED), "--output=wide", namespace=namespace)
        show("get", "events", "--sort-by=.lastTimestamp", namespace=namespace)
        show("describe", "lynxdeployments", namespace=namespace)
        for pod in show("get", "pods", "--output=name", namespace=namespace, quiet=True).split():
            show("logs", pod, "--all-containers", "--prefix", f"--tail={log_lines}", namespace=namespace)
            show("logs", pod, "--all-containers", "--previous", f"--tail={log_lines}", namespace=namespace)


def show(*arguments: str, namespace: str, quiet: bool = False) -> str:
    command = ["kubectl", "--namespace", namespace, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not quiet and done.stdout.strip():
        print(f"\n$ {' '.join(command)}\n{done.stdout.rstrip()}", flush=True)
    return done.stdout
