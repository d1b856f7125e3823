"""Frames that outlive their link: a prefill agent is killed and started again under its name and address, and what its
former life had said comes in the middle of what the new one says. And frames that outlive their transfer: a client goes
while the link's queue is full.

A kernel delivers no byte of one TCP connection on another, but what stands between two nodes may: a proxy that shares its
connections. So the relay here knows frames, keeps the last ones of each stream, and lets them pass once more on the next.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, deque
from typing import TYPE_CHECKING

import pair
import scenarios
from nodes import AGENT, DATA_PORT, PREFILL, Node, Nodes, Unmet, until
from relay import FROM_TARGET, PIECE, TO_TARGET, Relay

if TYPE_CHECKING:
    from faults import World

# docs/wire-format.md.
HEADER, CHUNK_HEADER = 16, 56
HELLO, FIRST_AFTER_HANDSHAKE, CHUNK = 1, 4, 7
# Of each stream and direction.
KEPT = 32

Key = tuple[int, str]


class Remembering(Relay):
    """A relay that lets the last frames of a lost connection pass once more on the one that takes its place."""

    def __init__(self, target: tuple[str, int]) -> None:
        # By priority and direction.
        self.kept: dict[Key, deque[bytes]] = {}
        self.old: dict[Key, list[bytes]] = {}
        self.repeated: Counter[str] = Counter()
        self.priorities: dict[object, int] = {}
        super().__init__(target)

    def repeat(self) -> None:
        """What was kept until now comes again on the next connections."""
        self.loop.call_soon_threadsafe(self.turn_old)

    def turn_old(self) -> None:
        self.old = {key: list(frames) for key, frames in self.kept.items() if frames}
        self.kept.clear()
        self.repeated.clear()

    async def pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        direction: str,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        waiting = b""
        while data := await source.read(PIECE):
            waiting += data
            while length := length_of(waiting):
                frame, waiting = waiting[:length], waiting[length:]
                sink.write(self.passing(frame, direction, pair))
                for old in self.after(frame, direction, pair):
                    sink.write(old)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    def after(self, frame: bytes, direction: str, pair: object) -> list[bytes]:
        """What follows this frame though nobody sends it."""
        kind = frame[1]
        if kind == HELLO:
            self.priorities[pair] = frame[HEADER + 6]
        if kind < FIRST_AFTER_HANDSHAKE:
            return []
        key = (self.priorities[pair], direction)
        self.kept.setdefault(key, deque(maxlen=KEPT)).append(frame)
        old = self.old.pop(key, [])
        self.repeated[direction] += len(old)
        return old


def length_of(data: bytes) -> int:
    """The length of the first frame, a chunk's payload included; 0 where it is not all there."""
    if len(data) < HEADER:
        return 0
    (body,) = struct.unpack_from("<I", data, 8)
    length = HEADER + body
    if data[1] == CHUNK:
        if len(data) < CHUNK_HEADER:
            return 0
        length += struct.unpack_from("<I", data, 36)[0]
    return length if len(data) >= length else 0


def dropped(node: Node, what: str, reason: str) -> int:
    """How many frames, or chunks, the node has thrown away for this reason since it was started."""
    _, text = node.fetch("/metrics")
    wanted = f'lynx_link_dropped_{what}_total{{reason="{reason}"}} '
    return sum(int(float(line.removeprefix(wanted))) for line in text.splitlines() if line.startswith(wanted))


def restart(world: World) -> scenarios.Row:
    """The frames of the former life are dropped, each is counted, and the new life's answer is right."""
    relay = Remembering((pair.ADDRESSES["a"], DATA_PORT))
    slowest, slowest_recovery, counted = 0.0, 0.0, 0
    with Nodes(world.options(), data=relay.address) as nodes:
        bench = scenarios.Bench(nodes, world.question(), world.name)
        bench.settle()
        for phase in ("half of the anchor", "half of the residual"):
            before = dropped(nodes.decode, "frames", "stale")
            answer, at, _ = bench.inject(phase, lambda: nodes.prefill.kill(AGENT))
            bench.expect(answer)
            relay.repeat()
            slowest_recovery = max(slowest_recovery, bench.recover((PREFILL, AGENT)))
            slowest = max(slowest, answer.ended - at)
            for node, direction, base in [(nodes.decode, FROM_TARGET, before), (nodes.prefill, TO_TARGET, 0)]:
                repeated = relay.repeated[direction]
                got = dropped(node, "frames", "stale") - base
                if repeated == 0 or got != repeated:
                    raise Unmet(f"the {node.role} agent got {repeated} old frames, and has dropped {got} as stale")
                counted += got
    got = f"the answer; {counted} of {counted} old frames dropped"
    return scenarios.Row("restart, old frames", "two phases", got, None, slowest, slowest_recovery)


class Gone(Exception):
    """The client has gone."""


def given_up(world: World) -> scenarios.Row:
    """What still comes of a transfer that nobody wants is dropped and counted, and the next is as good as ever."""
    with Nodes(world.options()) as nodes:
        bench = scenarios.Bench(nodes, world.question(), world.name)
        bench.settle()
        warm, is_now = scenarios.PHASES["half of the residual"]
        before = dropped(nodes.decode, "chunks", "late")
        bench.prepare(warm)

        def go(told: dict) -> None:
            if is_now(told):
                raise Gone

        try:
            bench.ask(go)
        except Gone:
            pass
        else:
            raise Unmet("the client was answered before it could go")
        settled = until("nothing is in flight", nodes.is_quiet)
        nodes.forget()
        answer = bench.ask()
        bench.expect(answer, is_transfer=True)
        late = dropped(nodes.decode, "chunks", "late") - before
        if late == 0:
            raise Unmet("no chunk of the transfer that was given up is counted as late")
        bench.look_for_leaks(None)
    got = f"the next answer, by the transfer; {late} late chunks dropped"
    return scenarios.Row("client gone, full queue", "half of the residual", got, None, answer.seconds, settled)
