"""A client of a decode agent: one question over the OpenAI endpoint, with everything that is told on the way."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MODEL = "model"


@dataclass
class Answer:
    """What a client got."""

    text: str = ""
    # In OpenAI's shape; or what the connection died of, with the type "connection".
    error: dict | None = None
    events: list[dict] = field(default_factory=list)
    # From the question to the last word.
    seconds: float = 0.0
    # When the last word came, by the monotonic clock.
    ended: float = 0.0

    def has(self, event: str) -> bool:
        return any(each["event"] == event for each in self.events)

    def sent(self) -> dict[str, int]:
        """The bytes of each class that the link had carried at the end."""
        return {each["priority"]: each["bytes"] for each in self.events if each["event"] == "sent"}


def ask(
    address: str,
    text: str,
    tokens: int,
    patience_s: float,
    watch: Callable[[dict], None] = lambda event: None,
) -> Answer:
    """Asks, and shows `watch` each event as it comes: {"event": "accepted"} first, as soon as there is an answer.

    A question that isn't answered to its end in time ends with an error of the type "patience".
    """
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "lynx": {"method": "lynx-exact", "ignore_eos": True, "timeline": True, "provisional": True},
    }
    answer = Answer()
    begun = time.monotonic()
    connection = http.client.HTTPConnection(address, timeout=patience_s)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            answer.error = json.loads(reply.read())["error"]
        else:
            read(reply, answer, watch)
    except TimeoutError:
        answer.error = {"type": "patience", "message": f"nothing came for {patience_s} s"}
    except (OSError, http.client.HTTPException) as error:
        answer.error = {"type": "connection", "message": repr(error)}
    finally:
        connection.close()
    answer.ended = time.monotonic()
    answer.seconds = answer.ended - begun
    return answer


def read(reply: http.client.HTTPResponse, answer: Answer, watch: Callable[[dict], None]) -> None:
    watch({"event": "accepted"})
    for line in reply:
        data = line.strip().removeprefix(b"data: ")
        if data == b"[DONE]":
            return
        if not data or not line.startswith(b"data: "):
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            answer.error = chunk["error"]
            return
        for choice in chunk.get("choices", []):
            answer.text += choice.get("delta", {}).get("content") or ""
        if event := chunk.get("lynx"):
            answer.events.append(event)
            watch(event)
    answer.error = {"type": "connection", "message": "the answer ends in the middle"}


def fetch(address: str, path: str, body: dict | None = None, patience_s: float = 10) -> tuple[int, str]:
    """The status and the body of a short answer. Raises OSError."""
    connection = http.client.HTTPConnection(address, timeout=patience_s)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except http.client.HTTPException as error:
        raise OSError(repr(error)) from error
    finally:
        connection.close()
