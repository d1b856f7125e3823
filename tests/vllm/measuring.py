"""What requests take, and medians of it with their intervals."""

from __future__ import annotations

import http.client
import json
import random
import statistics
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

from asking import ask
from nodes import Unmet
from servers import MODEL, Vllm

PROMPT_TOKENS = 200
TOKENS = 32
RESAMPLES = 10_000
SEED = 7


@dataclass(frozen=True)
class Cost:
    """What one request took: of the clock, and of the cores in all of its server's processes, in which those that wait by looking
    again and again count like those that compute."""

    wall_s: float
    core_s: float


@dataclass(frozen=True)
class Interval:
    """A median, and where it is in 95 of 100 samples drawn from the same values."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        drawn = random.Random(SEED)
        medians = sorted(statistics.median(drawn.choices(values, k=len(values))) for _ in range(RESAMPLES))
        return cls(statistics.median(values), medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40])

    def shares(self) -> str:
        return f"{self.middle:+.2%} ({self.low:+.2%} to {self.high:+.2%})"

    def times(self) -> str:
        return f"{1e3 * self.middle:.2f} ms ({1e3 * self.low:.2f} to {1e3 * self.high:.2f})"


def cost(server: Vllm, salt: str) -> Cost:
    """Of one request of which the prefix cache has nothing."""
    prompt = list(range(1000, 1000 + PROMPT_TOKENS))
    core, wall = server.seconds(), time.monotonic()
    answer = ask(server.url, prompt, TOKENS, ignore_eos=True, cache_salt=salt)
    took = Cost(time.monotonic() - wall, server.seconds() - core)
    if answer.error or len(answer.tokens) != TOKENS:
        raise Unmet(f"a plain request is not answered: {answer.error}")
    return took


def first_token(url: str) -> float:
    """How long the first token takes of a prompt for which no KV is brought, in seconds."""
    body = {"model": MODEL, "prompt": [1, 2], "max_tokens": 1, "temperature": 0, "stream": True}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
    try:
        begun = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        line = reply.readline()
        took = time.monotonic() - begun
        if not line.startswith(b"data: ") or b'"choices"' not in line:
            raise Unmet(f"no stream begins with {line!r}")
        reply.read()
        return took
    finally:
        connection.close()
