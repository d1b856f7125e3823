"""The stream to the agent: dialled, kept, and dialled again when it has ended."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import grpc

from .api import engine_pb2 as api

log = logging.getLogger(__name__)

#: The longest message: a prompt of a million tokens, and some.
MAX_MESSAGE = 16 << 20
#: The longest path that a Unix socket can have, in bytes.
MAX_PATH = 107
#: How long to leave an agent alone that is not there, in seconds: at first, and at most.
PAUSE, LONGEST_PAUSE = 0.02, 2.0
#: How long to leave an agent alone that does not take the engine: who is to mend it may mend the agent.
REFUSED_PAUSE = 5.0
#: How often a missing agent is spoken of: at first, and then after this many attempts.
ATTEMPTS_PER_WORD = 15

METHOD = "/lynx.engine.v1.EngineApi/Attach"


class SocketError(ValueError):
    """No agent could ever listen there."""


class Listener(Protocol):
    """Who hears what the agent says. Called from the link's thread, one call at a time."""

    def attached(self, send: Callable[[api.FromEngine], None]) -> None:
        """An agent has taken the engine; this is how it is spoken to, from any thread."""

    def heard(self, message: api.FromAgent) -> None:
        """What it says."""

    def lost(self) -> None:
        """It is gone."""


def check(socket: Path) -> None:
    """Raises `SocketError` unless an agent could listen there."""
    if len(bytes(socket)) > MAX_PATH:
        raise SocketError(f"the socket's path {socket} is longer than the {MAX_PATH} bytes that the system takes")
    if not socket.parent.is_dir():
        raise SocketError(f"there is no folder for the agent's socket {socket}: is the shared volume mounted there?")


class Link:
    """Attaches to whatever agent listens, again and again, until it is closed."""

    def __init__(
        self, socket: Path, offer: Callable[[], contextlib.AbstractContextManager[api.Attach]], listener: Listener
    ) -> None:
        """`offer` makes the first message of an attempt; what it names lasts until the agent has answered."""
        check(socket)
        self._socket = socket
        self._offer = offer
        self._listener = listener
        self._closed = threading.Event()
        self._call: grpc.Call | None = None
        self._refusal = ""
        self._thread = threading.Thread(target=self._keep, name="lynx-agent", daemon=True)

    def start(self) -> None:
        """Begins to dial."""
        self._thread.start()

    def close(self) -> None:
        """Ends the stream, and dials no more."""
        self._closed.set()
        call = self._call
        if call is not None:
            call.cancel()
        self._thread.join(timeout=5)

    def _keep(self) -> None:
        pause, attempts = PAUSE, 0
        while not self._closed.is_set():
            was_taken, status = self._converse()
            if self._closed.is_set():
                return
            if status.code is grpc.StatusCode.FAILED_PRECONDITION:
                if self._refusal != status.details:
                    log.error("the agent refuses this engine, which goes on asking: %s", status.details)
                    self._refusal = status.details
                pause = REFUSED_PAUSE
            elif was_taken:
                log.warning("the agent is gone; it is waited for: %s", status.details)
                pause, attempts = PAUSE, 0
            else:
                if attempts % ATTEMPTS_PER_WORD == 0:
                    log.warning("no agent answers on %s: is it running? (%s)", self._socket, status.details)
                attempts += 1
            self._closed.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _converse(self) -> tuple[bool, _Status]:
        """One attempt: whether an agent took the engine, and how it ended."""
        with contextlib.ExitStack() as offered:
            try:
                attach = offered.enter_context(self._offer())
            except OSError as error:
                return False, _Status(grpc.StatusCode.UNAVAILABLE, str(error))
            return self._stream(attach, offered.close)

    def _stream(self, attach: api.Attach, attached: Callable[[], None]) -> tuple[bool, _Status]:
        outbox: queue.SimpleQueue[api.FromEngine | None] = queue.SimpleQueue()
        outbox.put(api.FromEngine(attach=attach))
        options = [
            # What grpc-core sends for a Unix socket otherwise is no valid authority.
            ("grpc.default_authority", "localhost"),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            # Each attempt is one of its own: nothing of an earlier one's back-off is waited for.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        was_taken = False
        with grpc.insecure_channel(f"unix:{self._socket}", options=options) as channel:
            method = channel.stream_stream(
                METHOD,
                request_serializer=api.FromEngine.SerializeToString,
                response_deserializer=api.FromAgent.FromString,
            )
            call = method(_drain(outbox))
            self._call = call
            if self._closed.is_set():
                call.cancel()
            try:
                for message in call:
                    if was_taken:
                        self._listener.heard(message)
                    elif message.WhichOneof("kind") == "attached":
                        log.info("attached to %s", message.attached.agent)
                        self._refusal = ""
                        was_taken = True
                        attached()
                        self._listener.attached(outbox.put)
                status = _Status(grpc.StatusCode.OK, "it ended the stream")
            except grpc.RpcError as error:
                status = _Status(error.code(), error.details() or "")
            finally:
                self._call = None
                outbox.put(None)
                if was_taken:
                    self._listener.lost()
        return was_taken, status


class _Status:
    """How a stream ended."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code = code
        self.details = details


def _drain(outbox: queue.SimpleQueue[api.FromEngine | None]) -> Iterator[api.FromEngine]:
    while (message := outbox.get()) is not None:
        yield message
