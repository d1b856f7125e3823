"""A relay of TCP connections that counts what passes, and does something at a chosen byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Small, so that the byte that is counted is about the byte that arrives.
BUFFER = 64 << 10
PIECE = 16 << 10

TO_TARGET = "to target"
FROM_TARGET = "from target"

# Both ends of a connection that is relayed.
Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


@dataclass
class Fault:
    """What happens when so many more bytes have passed in one direction."""

    # cut: every connection is reset. close: the one that carries the byte is. corrupt: one bit of it is flipped. stall:
    # nothing is read any more. call: `action` is called.
    kind: str
    direction: str
    after: int
    action: Callable[[], None] = lambda: None
    fired: threading.Event = field(default_factory=threading.Event)
    # When it happened, by the monotonic clock.
    at: float = 0.0


class Relay:
    """Listens on the loopback and carries each connection to `target`. Lives in a thread of its own."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.fault: Fault | None = None
        self.passed = {TO_TARGET: 0, FROM_TARGET: 0}
        # What is up, each with what is set at its end: a task that waits for nothing would be collected as garbage.
        self.pairs: dict[Pair, asyncio.Event] = {}
        self.loop = asyncio.new_event_loop()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self.address = "{}:{}".format(*self.listener.getsockname())
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.serve())

    async def serve(self) -> None:
        server = await asyncio.start_server(self.carry, sock=self.listener, limit=BUFFER)
        async with server:
            await server.serve_forever()

    def arm(self, fault: Fault) -> Fault:
        """From now on bytes are counted towards this fault, which happens once."""
        self.loop.call_soon_threadsafe(setattr, self, "fault", fault)
        return fault

    def disarm(self) -> None:
        self.loop.call_soon_threadsafe(setattr, self, "fault", None)

    def cut(self) -> None:
        self.loop.call_soon_threadsafe(self.abort, list(self.pairs))

    async def carry(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        try:
            far_in, far_out = await asyncio.open_connection(*self.target, limit=BUFFER)
        except OSError:
            near_out.transport.abort()
            return
        pair = (near_out, far_out)
        self.pairs[pair] = asyncio.Event()
        for writer in pair:
            writer.transport.set_write_buffer_limits(high=BUFFER)
        ways = [self.pump(near_in, far_out, TO_TARGET, pair), self.pump(far_in, near_out, FROM_TARGET, pair)]
        with contextlib.suppress(OSError):
            await asyncio.gather(*ways)
        self.abort([pair])

    async def pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        direction: str,
        pair: Pair,
    ) -> None:
        while data := await source.read(PIECE):
            data = self.passing(data, direction, pair)
            if not data:
                # Nothing is read any more, and nobody is told.
                if over := self.pairs.get(pair):
                    await over.wait()
                return
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    def passing(self, data: bytes, direction: str, pair: Pair) -> bytes:
        """What becomes of these bytes; nothing at all where the connection stands still from now on."""
        self.passed[direction] += len(data)
        fault = self.fault
        if fault is None or fault.direction != direction:
            return data
        if fault.after >= len(data):
            fault.after -= len(data)
            return data
        # A stalled link is one for all that is on it.
        if fault.kind != "stall":
            self.fault = None
        fault.at = fault.at or time.monotonic()
        fault.fired.set()
        if fault.kind == "corrupt":
            changed = bytearray(data)
            changed[fault.after] ^= 0x10
            return bytes(changed)
        if fault.kind == "stall":
            fault.after = 0
            return b""
        if fault.kind == "cut":
            self.abort(list(self.pairs))
        elif fault.kind == "close":
            self.abort([pair])
        else:
            fault.action()
        return data

    def abort(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            if over := self.pairs.pop(pair, None):
                over.set()
            for writer in pair:
                writer.transport.abort()
