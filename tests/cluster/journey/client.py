"""Clients of a deployment: one question, or many at once."""

from __future__ import annotations

import json
import secrets
import threading
import urllib.error
import urllib.request
from types import TracebackType

from .kubectl import Unmet

# Longer than any answer here takes on a machine that has other things to do.
PATIENCE_S = 300


def ask(url: str, text: str, tokens: int, trace: str = "") -> str:
    """The answer of the endpoint at `url`, with as many tokens as asked for. Raises Unmet with its complaint.

    The question becomes part of the trace with this id.
    """
    body = {
        "model": model(url),
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "lynx": {"ignore_eos": True},
    }
    headers = {"Content-Type": "application/json"}
    if trace:
        headers["traceparent"] = f"00-{trace}-{secrets.token_hex(8)}-01"
    reply = fetch(urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers))
    return reply["choices"][0]["message"]["content"]


def model(url: str) -> str:
    """The name of the model that the endpoint serves."""
    (only,) = fetch(urllib.request.Request(f"{url}/v1/models"))["data"]
    return only["id"]


def fetch(request: urllib.request.Request) -> dict:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise Unmet(f"{request.full_url} answers {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise Unmet(f"{request.full_url}: {error}") from error


class Load:
    """Clients that ask one question after the other while this context lasts. Leaving it raises Unmet if one failed."""

    def __init__(self, url: str, clients: int, tokens: int, words: int) -> None:
        self.url = url
        self.tokens = tokens
        self.words = words
        self.answered = 0
        self.failures: list[str] = []
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask_on, args=[number]) for number in range(clients)]

    def ask_on(self, client: int) -> None:
        question = 0
        while not self.over.is_set():
            # Texts of their own, so that no prefix cache answers.
            text = " ".join(f"{client}.{question}.{word}" for word in range(self.words // 6))
            try:
                ask(self.url, text, self.tokens)
                with self.lock:
                    self.answered += 1
            except Unmet as complaint:
                with self.lock:
                    self.failures.append(str(complaint))
            question += 1

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        if error is None and (self.failures or not self.answered):
            raise Unmet(f"{self.answered} requests were answered, these were not: {self.failures[:5]}")
