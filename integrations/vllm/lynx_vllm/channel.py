"""From the worker to the scheduler's side: which layers are saved, as they are.

vLLM carries a worker's words to the scheduler when a step has ended. A layer's are wanted when the layer has: so they go
over a socket of their own, in datagrams, whose order is one order whoever sends them.
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Kind, request, layer, first and end of the tokens, when the layer began and ended.
_FORM = struct.Struct("<BQIIIQQ")


class What(enum.IntEnum):
    """What has happened."""

    #: What the prefix cache had is copied, up to `end`.
    CACHED = 1
    #: A layer's tokens are copied.
    SAVED = 2
    #: The prompt is computed; `end` is the first token.
    DONE = 3
    #: The request ended otherwise.
    ENDED = 4
    #: Nobody is to listen any more.
    CLOSE = 5


@dataclass(frozen=True)
class Event:
    """One datagram."""

    what: What
    request: int = 0
    layer: int = 0
    first: int = 0
    end: int = 0
    start_unix_ns: int = 0
    end_unix_ns: int = 0

    def pack(self) -> bytes:
        """As bytes."""
        times = (self.start_unix_ns, self.end_unix_ns)
        return _FORM.pack(self.what, self.request, self.layer, self.first, self.end, *times)

    @classmethod
    def unpack(cls, data: bytes) -> Event | None:
        """From bytes; `None` where they are none of ours."""
        if len(data) != _FORM.size:
            return None
        kind, *rest = _FORM.unpack(data)
        try:
            return cls(What(kind), *rest)
        except ValueError:
            return None


def path_of(shared_directory: Path, engine_id: str) -> Path:
    """Where an engine's two sides meet."""
    return shared_directory / f"vllm-{engine_id[:8]}.sock"


def remove_stale(folder: Path) -> None:
    """Removes sockets of engines that were killed: nobody listens on them."""
    for path in folder.glob("vllm-*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue


class Sender:
    """Tells of events; connects when it first has one to tell."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def tell(self, event: Event) -> None:
        """Waits where the other side is behind. Nobody is left to hear once it has ended."""
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self._socket.sendto(event.pack(), self._path)

    def close(self) -> None:
        """Tells nothing more."""
        self._socket.close()


class Receiver:
    """Hears of events in a thread of its own, and says after each, and at least once a period, that time passes."""

    def __init__(self, path: Path, heard: Callable[[Event], None], tick: Callable[[], None], period: float) -> None:
        self.path = path
        self._heard = heard
        self._tick = tick
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        remove_stale(path.parent)
        self._socket.bind(str(path))
        os.chmod(path, 0o600)
        self._socket.settimeout(period)
        self._thread = threading.Thread(target=self._listen, name="lynx-events", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def close(self) -> None:
        """Listens no more."""
        sender = Sender(self.path)
        sender.tell(Event(What.CLOSE))
        sender.close()
        self._thread.join(timeout=5)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _listen(self) -> None:
        while True:
            try:
                event = Event.unpack(self._socket.recv(_FORM.size + 1))
            except TimeoutError:
                self._tick()
                continue
            if event is None:
                continue
            if event.what is What.CLOSE:
                return
            self._heard(event)
            self._tick()
