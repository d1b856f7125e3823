"""A client of OpenAI's interface."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from dataclasses import dataclass, field

from servers import MODEL

PATIENCE_S = 300


@dataclass
class Answer:
    """What a client got."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    # Of each token, the likeliest ones' logits, the likeliest first.
    logits: list[list[float]] = field(default_factory=list)
    # How many messages it came in.
    pieces: int = 0
    error: str = ""


def ask(url: str, prompt: list[int], tokens: int, *, stream: bool = False, **more: object) -> Answer:
    """One question, given in tokens; its first choice."""
    return choices(url, prompt, tokens, stream=stream, **more)[0]


def choices(url: str, prompt: list[int], tokens: int, *, stream: bool = False, **more: object) -> list[Answer]:
    """One question; all of its choices."""
    body = {
        **{"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream},
        **{"return_token_ids": True, **more},
    }
    answers = [Answer() for _ in range(int(more.get("n", 1)))]
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            answers[0].error = f"{reply.status}: {reply.read().decode(errors='replace')}"
        elif stream:
            for line in reply:
                data = line.strip().removeprefix(b"data: ")
                if data and data != b"[DONE]":
                    take(json.loads(data), answers)
        else:
            take(json.loads(reply.read()), answers)
    except (OSError, http.client.HTTPException) as error:
        answers[0].error = repr(error)
    finally:
        connection.close()
    return answers


def take(message: dict, answers: list[Answer]) -> None:
    """Adds one message to the answers that it is of."""
    if "error" in message:
        answers[0].error = json.dumps(message["error"])
    if message.get("kv_transfer_params") is not None:
        answers[0].error = "the answer tells a client of kv_transfer_params"
    for choice in message.get("choices", []):
        answer = answers[choice["index"]]
        answer.tokens += choice.get("token_ids") or []
        answer.text += choice["text"]
        answer.finish = choice["finish_reason"] or answer.finish
        answer.pieces += 1
        for likeliest in (choice.get("logprobs") or {}).get("top_logprobs") or []:
            answer.logits.append(sorted(likeliest.values(), reverse=True))


def tokens_of(url: str, text: str) -> list[int]:
    """A text in the model's tokens."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=PATIENCE_S)
    try:
        body = json.dumps({"model": MODEL, "prompt": text})
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["tokens"]
    finally:
        connection.close()
