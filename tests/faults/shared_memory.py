"""Shared memory that is full, before an engine starts and while one works; and a pool that is cut short."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import scenarios
from nodes import AGENT, DECODE, ENGINE, PREFILL, Nodes, Unmet, until

if TYPE_CHECKING:
    from faults import World

# Too little for a pool, and enough for one.
TINY, ENOUGH = "4m", "48m"
# Whose pool is cut when, and what is left of it.
CUT = [(PREFILL, "prefill begun"), (PREFILL, "half of the anchor"), (DECODE, "half of the residual")]
LEFT = 4096


@contextlib.contextmanager
def memory(folder: Path) -> Iterator[None]:
    """A tiny file system of its own there. Only this process and the children that it starts from now on see it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={TINY}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def full(world: World) -> scenarios.Row:
    """An engine that finds no room says so and ends, and its agent waits for another; one that found room keeps it."""
    nodes = Nodes(world.options())
    decode = nodes.decode
    with contextlib.ExitStack() as undo:
        nodes.prefill.start_both()
        undo.enter_context(memory(decode.shared))
        undo.callback(nodes.stop)
        decode.start(AGENT)
        until("the decode agent listens", lambda: "listening" in decode.processes[AGENT].states)
        begun = time.monotonic()
        decode.start(ENGINE)
        until("the engine without room ends", decode.processes[ENGINE].has_ended)
        ended = time.monotonic() - begun
        said = nodes.log(DECODE, ENGINE)
        if "No space left on device" not in said or decode.processes[ENGINE].child.returncode != 1:
            raise Unmet(f"the engine ends with {decode.processes[ENGINE].child.returncode} and says: {said!r}")
        if decode.processes[AGENT].has_ended():
            raise Unmet("the agent has ended with its engine")
        decode.processes[ENGINE].close()
        subprocess.run(["mount", "-o", f"remount,size={ENOUGH}", decode.shared], check=True)
        begun = time.monotonic()
        decode.start(ENGINE)
        nodes.wait()
        recovered = time.monotonic() - begun
        fill(decode.shared / "other")
        bench = scenarios.Bench(nodes, world.question(), world.name)
        bench.prepare(warm=False)
        bench.expect(bench.ask(), is_transfer=True)
    got = "the engine's own message; the answer once there is room"
    return scenarios.Row("shared memory full", "engine start", got, None, ended, recovered)


def cut_short(world: World) -> scenarios.Row:
    """A pool that loses its pages under both who map it. Its engine may end by that; the agent goes on, and takes the next."""
    slowest, slowest_recovery = 0.0, 0.0
    with Nodes(world.options()) as nodes:
        bench = scenarios.Bench(nodes, world.question(), world.name)
        bench.settle()
        for role, phase in CUT:
            engine = nodes.nodes[role].processes[ENGINE]
            pool = nodes.nodes[role].shared / f"kv-{engine.child.pid}"
            answer, at, _ = bench.inject(phase, lambda pool=pool: os.truncate(pool, LEFT))
            if nodes.nodes[role].processes[AGENT].has_ended():
                raise Unmet(f"the {role} agent has ended with its engine's pool")
            if role == PREFILL:
                bench.expect(answer)
            else:
                scenarios.error_of(answer, "service_unavailable")
            slowest = max(slowest, answer.ended - at)
            if engine.has_ended():
                engine.close()
            else:
                engine.kill()
            slowest_recovery = max(slowest_recovery, bench.recover((role, ENGINE)))
    got = "the answer, or an error where the decode engine's pool was cut; both agents live"
    return scenarios.Row("pool cut short", "three phases", got, None, slowest, slowest_recovery)


def fill(file: Path) -> None:
    """Takes what is left of a file system."""
    with file.open("wb") as out:
        room = os.statvfs(file.parent)
        os.posix_fallocate(out.fileno(), 0, room.f_bavail * room.f_bsize)
