#!/usr/bin/env python3
"""Faults with real processes: two agents and two engines in network namespaces, and everything that can go wrong.

    faults.py [--long] [--seed N] [--only TEXT]

    --long      every phase, and 1,000 faults at chosen bytes instead of 60
    --seed N    another sequence of those
    --only TEXT only the scenarios whose names contain TEXT, or one of TEXT|TEXT; --list names them

Needs root, ip, tc, cc, the `lynx` program and the example `answer` of lynx-engine, built: `make test-faults` sees to it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.dont_write_bytecode = True

import bytewise
import clocks
import old_frames
import pair
import scenarios
import shared_memory
from nodes import Nodes, Options, Unmet

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Which animals live in the forests of Scandinavia? Tell me how they spend the winter. " * 6
LOG_LINES = 15
TERMINATED = 143
Said = Callable[[str], None]


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults with real processes.")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first fault of the seed's sequence")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print("\n".join([*(name for name, _ in scenarios.scenarios(options.long)), *OTHERS]))
        return 0
    if options.inside:
        return inside(options, json.loads(sys.stdin.read()))
    return outside()


def outside() -> int:
    """Makes the namespaces and enters one of them, where the client is; leaves nothing."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    model = output(str(ROOT / "scripts" / "model")).split()[-1]
    alone = [str(target / "examples" / "answer"), model]
    questions = [QUESTION, *bytewise.QUESTIONS]
    answers = [output(*alone, str(tokens_of(text)), text).removesuffix("\n") for text in questions]
    given = {"program": str(target / "lynx"), "model": model, "answers": answers}
    # Whoever ends this wants nothing left of it either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    name = f"lxf{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="lynx-faults-", dir="/dev/shm"))
    try:
        pair.up(name, scenarios.RATE)
        enter = ["ip", "netns", "exec", f"{name}-b", sys.executable, __file__, *sys.argv[1:]]
        command = [*enter, "--inside", f"{name} {folder}"]
        return subprocess.run(command, input=json.dumps(given), text=True, check=False).returncode
    finally:
        pair.down(name)
        shutil.rmtree(folder)


def tokens_of(text: str) -> int:
    return scenarios.TOKENS if text == QUESTION else bytewise.TOKENS


def inside(options: argparse.Namespace, given: dict) -> int:
    name, folder = options.inside.split()
    world = World(options, given, name, Path(folder))
    failures = 0
    for run in [phases, *OTHERS.values()]:
        failures += run(world)
    failures += slow_kills(world)
    world.write_table()
    print(f"  faults    {len(world.rows)} scenarios in {time.monotonic() - world.begun:.0f} s, {failures} failed")
    return 1 if failures else 0


class World:
    """What all parts share."""

    def __init__(self, options: argparse.Namespace, given: dict, name: str, folder: Path) -> None:
        self.long, self.seed, self.first, self.only = options.long, options.seed, options.first, options.only
        self.program, self.model, self.answers = given["program"], given["model"], given["answers"]
        self.name, self.folder = name, folder
        self.rows: list[scenarios.Row] = []
        self.begun = time.monotonic()
        self.bench_number = 0

    def wants(self, name: str) -> bool:
        return any(part in name for part in self.only.split("|"))

    def options(self) -> Options:
        """For a new pair of nodes, in a folder of their own."""
        self.bench_number += 1
        folder = self.folder / str(self.bench_number)
        folder.mkdir()
        return Options(self.name, self.program, self.model, folder)

    def question(self) -> scenarios.Question:
        return scenarios.Question(QUESTION, self.answers[0])

    def say(self, text: str) -> None:
        print(f"  {time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def write_table(self) -> None:
        heading = ("fault", "phase", "noticed", "answered", "recovered", "the client got")
        lines = [heading]
        for row in self.rows:
            noticed = "" if row.noticed_s is None else f"{row.noticed_s * 1000:.0f} ms"
            times = (f"{row.answered_s:.2f} s", f"{row.recovered_s:.2f} s")
            lines.append((row.fault, row.phase, noticed, *times, row.got))
        widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
        for line in lines:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def phases(world: World) -> int:
    """Each fault in each of its phases, on one pair of nodes; on a new one after a failure."""
    wanted = [(name, run) for name, run in scenarios.scenarios(world.long) if world.wants(name)]
    failures = 0
    while wanted:
        options = world.options()
        nodes = Nodes(options)
        try:
            with nodes:
                bench = scenarios.Bench(nodes, world.question(), world.name)
                bench.settle()
                while wanted:
                    name, run = wanted.pop(0)
                    row = run(bench)
                    world.rows.append(row)
                    noticed = "" if row.noticed_s is None else f", noticed after {row.noticed_s * 1000:.0f} ms"
                    world.say(f"{name}: {row.got}{noticed}")
        except Unmet as unmet:
            failures += 1
            failed(world, name if "name" in locals() else "the start", unmet, options.folder)
            pair.mend(world.name)
            pair.shape(world.name, scenarios.RATE)
            if "name" not in locals():
                break
    return failures


def slow_kills(world: World) -> int:
    """Whether deaths are noticed too late: by the median."""
    noticed = [row.noticed_s for row in world.rows if row.fault.startswith("kill") and row.noticed_s is not None]
    median = statistics.median(noticed) if noticed else 0.0
    world.say(f"a killed peer is noticed after {median * 1000:.0f} ms, median of {len(noticed)}")
    return int(median > scenarios.KILL_NOTICED_S)


def failed(world: World, name: str, unmet: Unmet, folder: Path) -> None:
    world.say(f"FAILED {name}: {unmet}")
    for log in sorted(folder.glob("*.log")):
        print(f"    {log.stem}:")
        for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            print(f"      {line}")
    print(f"    again: make test-faults ARGS='{'--long ' * world.long}--only \"{name}\"'", flush=True)


def alone(name: str, run: Callable[[World], scenarios.Row]) -> Callable[[World], int]:
    """A scenario with nodes of its own."""

    def part(world: World) -> int:
        if not world.wants(name):
            return 0
        try:
            row = run(world)
        except Unmet as unmet:
            failed(world, name, unmet, world.folder / str(world.bench_number))
            return 1
        world.rows.append(row)
        world.say(f"{name}: {row.got}")
        return 0

    return part


OTHERS = {
    "full shared memory": alone("full shared memory", shared_memory.full),
    "pool cut short": alone("pool cut short", shared_memory.cut_short),
    "clocks apart": alone("clocks apart", clocks.apart),
    "clock jump": alone("clock jump", clocks.jump),
    "restart, old frames": alone("restart, old frames", old_frames.restart),
    "client gone, full queue": alone("client gone, full queue", old_frames.given_up),
    "bytewise": alone("bytewise", bytewise.run),
}


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
