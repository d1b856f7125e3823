"""The cluster, by the commands that a user would type."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

Object = dict[str, Any]

# What a slow machine gets for a change that a user would wait for.
PATIENCE_S = 300
# Between two looks at something that nobody can be told to watch.
INTERVAL_S = 0.2


class Unmet(Exception):
    """Something is not as it must be: the message says what."""


def run(*command: str, text: str | None = None) -> str:
    """What the command prints. Raises Unmet with its complaint."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unmet(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def kubectl(*arguments: str, text: str | None = None) -> str:
    return run("kubectl", *arguments, text=text)


def get(*arguments: str) -> Object:
    return json.loads(kubectl("get", *arguments, "--output=json"))


def read(manifest: str) -> Object:
    """The object of a YAML file, which stays as it is."""
    command = ["create", "--dry-run=client", "--validate=false", "--output=json"]
    return json.loads(kubectl(*command, "--filename", manifest))


def apply(manifest: Object) -> None:
    kubectl("apply", "--filename=-", text=json.dumps(manifest))


def refusal(manifest: Object) -> str:
    """Why the API server does not take an object. Raises Unmet if it does."""
    try:
        kubectl("apply", "--dry-run=server", "--filename=-", text=json.dumps(manifest))
    except Unmet as complaint:
        return str(complaint)
    raise Unmet(f"The API server takes {json.dumps(manifest)}")


def look(reached: Callable[[], object], what: str, patience: float = PATIENCE_S) -> None:
    """Looks until it is so. Raises Unmet if it takes too long."""
    deadline = time.monotonic() + patience
    while not reached():
        if time.monotonic() > deadline:
            raise Unmet(f"Not within {patience:.0f} s: {what}")
        time.sleep(INTERVAL_S)


def watch(what: str, reached: Callable[[Object], bool], kind: str, name: str, patience: float = PATIENCE_S) -> Object:
    """Follows one object until it is so, and returns it. Raises Unmet if it takes too long.

    Asked for by its name, kubectl prints the object and then leaves out the first thing that its watch says, which may be
    newer. A list of one is watched from the very state that was printed.
    """
    command = ["kubectl", "get", kind, f"--field-selector=metadata.name={name}", "--watch", "--output=json"]
    last: Object = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        timer = threading.Timer(patience, child.kill)
        timer.start()
        try:
            assert child.stdout is not None
            for last in documents(child.stdout):
                if reached(last):
                    return last
        finally:
            timer.cancel()
            child.kill()
    state = json.dumps(last.get("status", last), indent=2)
    raise Unmet(f"Not within {patience:.0f} s: {what}. The last that was seen:\n{state}")


def documents(stream: IO[str]) -> Iterator[Object]:
    """JSON documents that follow each other, as they come."""
    decoder = json.JSONDecoder()
    text = ""
    for line in stream:
        text += line
        # kubectl indents: only the end of a document stands at the start of a line.
        if line.startswith("}"):
            document, end = decoder.raw_decode(text.lstrip())
            text = text.lstrip()[end:]
            yield document


def condition(seen: Object, kind: str) -> Object:
    """The condition of that type, or nothing yet. Of a definition just made the API server says `conditions: null`, which
    `kubectl wait` takes for an error."""
    conditions = seen.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})
