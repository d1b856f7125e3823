"""Nodes whose clocks differ, and a clock that is set while a transfer is under way."""

from __future__ import annotations

import struct
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nodes
import scenarios
from nodes import AGENT, DECODE, ENGINE, PREFILL, Nodes, Options

if TYPE_CHECKING:
    from faults import World

# No clock of a node that runs is set so far off, and every deadline is shorter.
APART_S = 600
JUMP_S = 3600


class Clock:
    """The wall clock of one node's processes."""

    def __init__(self, folder: Path, name: str, seconds: int) -> None:
        self.file = folder / f"{name}.clock"
        self.file.write_bytes(struct.pack("=q", seconds))

    def set(self, seconds: int) -> None:
        with self.file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


def with_clocks(options: Options, seconds: dict[str, int]) -> tuple[Nodes, dict[str, Clock]]:
    """Nodes whose clocks are so far ahead."""
    library = options.folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    pair_of_nodes = Nodes(options)
    set_clocks = {}
    for role, ahead in seconds.items():
        set_clocks[role] = Clock(options.folder, role, ahead)
        moved = {"LD_PRELOAD": str(library), "LYNX_TEST_CLOCK": str(set_clocks[role].file)}
        pair_of_nodes.nodes[role].environment = {AGENT: moved, ENGINE: moved}
    return pair_of_nodes, set_clocks


def apart(world: World) -> scenarios.Row:
    """The prefill node's clock is ahead, and then behind: the KV comes all the same."""
    slowest = 0.0
    for ahead in (APART_S, -APART_S):
        pair_of_nodes, _ = with_clocks(world.options(), {PREFILL: ahead})
        with pair_of_nodes:
            bench = scenarios.Bench(pair_of_nodes, world.question(), world.name)
            bench.prepare(warm=False)
            answer = bench.ask()
            bench.expect(answer, is_transfer=True)
            slowest = max(slowest, answer.seconds)
    return scenarios.Row("clocks apart", f"by {APART_S} s", "the answer, by the transfer", None, slowest, 0.0)


def jump(world: World) -> scenarios.Row:
    """Both nodes' clocks are set forward, and back, in the middle of a transfer: nothing comes of it."""
    pair_of_nodes, set_clocks = with_clocks(world.options(), {PREFILL: 0, DECODE: 0})
    slowest = 0.0
    with pair_of_nodes:
        bench = scenarios.Bench(pair_of_nodes, world.question(), world.name)
        bench.settle()
        for seconds in (JUMP_S, 0, -JUMP_S):
            for phase in ("half of the anchor", "drafting"):

                def set_all(seconds: int = seconds) -> None:
                    for clock in set_clocks.values():
                        clock.set(seconds)

                answer, _, _ = bench.inject(phase, set_all)
                bench.expect(answer, is_transfer=True)
                slowest = max(slowest, answer.seconds)
        begun = time.monotonic()
        nodes.until("nothing is in flight", pair_of_nodes.is_quiet)
    took = time.monotonic() - begun
    return scenarios.Row("clock jump", f"by {JUMP_S} s", "the answer, by the transfer", None, slowest, took)
