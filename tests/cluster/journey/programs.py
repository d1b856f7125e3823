"""Programs of other projects, in the node's network."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .kubectl import Unmet

LAST_LINES = 20


def cluster() -> Path:
    """The cluster's folder."""
    return Path(os.environ["KUBECONFIG"]).parent


@contextmanager
def running(*command: str, **environment: str) -> Iterator[None]:
    """The program, with this much more in its environment, as long as the context lasts. Its log is among the node's.

    Raises Unmet with the log's end where it has ended by itself.
    """
    log = cluster() / "logs" / f"{command[0]}.log"
    with open(log, "wb") as out:
        child = subprocess.Popen(command, env={**os.environ, **environment}, stdout=out, stderr=out)
    try:
        yield
    finally:
        status = child.poll()
        child.kill()
        child.wait()
        if status is not None:
            last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise Unmet("\n".join([f"{command[0]} has ended with status {status}:", *last]))
