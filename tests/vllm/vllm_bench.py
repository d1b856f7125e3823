#!/usr/bin/env python3
"""What Lynx costs a vLLM's requests that have nothing to do with it, as root.

    vllm_bench.py [--rounds NUMBER] [--executors uni,mp] [--json FILE] [--keep]

One server as decode nodes have it, with its agent. Each round asks it the same three times, in another order: once as it is, and twice
as if it were a plain vLLM (toggled/lynx_toggled.py). The two plain ones are compared too, which says what the comparison is worth. Then
it is asked past its agent and through it, in turns. Its processes and this one come before whatever else the machine does.

Once with vLLM's scheduler and its worker in one process (uni), where the cores' seconds are those of computation, and once in two
(mp), as `vllm serve` has them on CPUs, where each looks for the other's word all the time.

Needs ip, `lynx` and what scripts/vllm-env makes: `make bench-vllm` sees to it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "faults"))

from measuring import Cost, Interval, cost, first_token
from nodes import AGENT, DECODE, ENGINE, Unmet, until
from place import Place, enter
from servers import START_S, VllmNode

AGENT_URL = "http://127.0.0.1:8090"
# The kinds of request, which are the beginnings of their salts.
LYNX, PLAIN, TWIN = "lynx", "plain", "plain twin"
WARMING = 3
RELAYED = 100
# What is promised.
MOST = 0.02
# What comes before everything else.
FIRST = -20
# On CPUs vLLM gives the scheduler's process the worker's work only where it is told that nobody wants more processes.
TOGETHER = "VLLM_ENABLE_V1_MULTIPROCESSING"


class Bench:
    """The server and its agent."""

    def __init__(self, place: Place, executor: str) -> None:
        folder = place.folder / executor
        folder.mkdir()
        listen = {"http": "127.0.0.1:8090", "drain": "127.0.0.1:8091"}
        self.node = VllmNode(DECODE, place.options("release", folder), place.environment, {"listen": listen})
        self.node.diagnostics = False
        self.node.toggled = HERE / "toggled"
        self.node.more = ["--distributed-executor-backend", executor]

    def start(self) -> float:
        """How long it took."""
        self.node.start(ENGINE)
        self.node.start(AGENT)
        took = until("vLLM works", self.node.vllm.is_well, START_S)
        took += until("the agent has its engine", self.node.is_ready)
        for process in (self.node.vllm.child.pid, self.node.processes[AGENT].child.pid, os.getpid()):
            comes_first(process)
        return took

    def rounds(self, count: int) -> dict[str, list[Cost]]:
        """What each kind of request took, round by round."""
        costs: dict[str, list[Cost]] = {kind: [] for kind in (LYNX, PLAIN, TWIN)}
        for number in range(WARMING):
            for kind in costs:
                cost(self.node.vllm, f"{kind}, warming {number}")
        orders = itertools.cycle(itertools.permutations(costs))
        for number, order in zip(range(count), orders, strict=False):
            for kind in order:
                costs[kind].append(cost(self.node.vllm, f"{kind}, round {number}"))
        return costs

    def relayed(self, count: int) -> list[tuple[float, float]]:
        """Times to a first token: past the agent, and through it."""
        urls = [self.node.vllm.url, AGENT_URL]
        times = []
        for number in range(count):
            found = {url: first_token(url) for url in urls[:: 1 if number % 2 else -1]}
            times.append((found[urls[0]], found[AGENT_URL]))
        return times


def comes_first(process: int) -> None:
    """Before others of its session, and that before others where the system weighs sessions."""
    os.setpriority(os.PRIO_PGRP, os.getpgid(process), FIRST)
    try:
        Path(f"/proc/{process}/autogroup").write_text(str(FIRST))
    except OSError:
        pass


def compared(costs: dict[str, list[Cost]], executor: str) -> list[dict]:
    """Says how the kinds compare, Lynx's with both plain ones of its round; the rows of the file."""
    rows = []
    for one, other in ((LYNX, (PLAIN, TWIN)), (TWIN, (PLAIN,))):
        row = {"request": one, "beside": PLAIN, "executor": executor, "rounds": len(costs[one])}
        said = []
        for what, word in (("wall_s", "of the clock's"), ("core_s", "of the cores'")):
            times = [getattr(cost, what) for cost in costs[one]]
            beside = [
                statistics.mean(getattr(cost, what) for cost in each)
                for each in zip(*(costs[kind] for kind in other), strict=True)
            ]
            found = Interval.of([mine / theirs - 1 for mine, theirs in zip(times, beside, strict=True)])
            row[f"beside_{what}"] = statistics.median(beside)
            row |= {f"{what[:-2]}_{end}": getattr(found, end) for end in ("middle", "low", "high")}
            said.append(f"{found.shares()} {word} {row[f'beside_{what}']:.3f} s")
        rows.append(row)
        print(f"  {executor:9} {one} beside plain: {', '.join(said)}", flush=True)
    return rows


def handed_on(times: list[tuple[float, float]], executor: str) -> dict:
    """Says what handing on costs; the row of the file."""
    found = Interval.of([through - past for past, through in times])
    past_ms = 1e3 * statistics.median(past for past, _ in times)
    print(f"  {executor:9} through the agent: {found.times()} more to the first token, {past_ms:.1f} ms past it", flush=True)
    row = {"request": "through the agent", "beside": "past it", "executor": executor, "rounds": len(times), "past_ms": past_ms}
    return row | {f"more_{end}_ms": 1e3 * getattr(found, end) for end in ("middle", "low", "high")}


def main() -> int:
    parser = argparse.ArgumentParser(description="What Lynx costs a vLLM's requests that have nothing to do with it.")
    parser.add_argument("--executors", default="uni,mp")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    return inside(options) if options.inside else enter(__file__, "none", options.keep)


def inside(options: argparse.Namespace) -> int:
    rows = []
    try:
        for executor in options.executors.split(","):
            os.environ[TOGETHER] = "0" if executor == "uni" else "1"
            rows += measured(options, executor)
    except (Unmet, OSError) as error:
        print(f"  FAILED    {error}")
        return 1
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    missed = [row for row in rows if row["request"] == LYNX and row["wall_low"] > MOST]
    if missed:
        print(f"  MISSED    a plain request takes more than {MOST:.0%} more")
    return 1 if missed else 0


def measured(options: argparse.Namespace, executor: str) -> list[dict]:
    bench = Bench(Place.parse(options.inside), executor)
    try:
        print(f"  {bench.start():6.1f} s  vLLM and its agent work", flush=True)
        return [*compared(bench.rounds(options.rounds), executor), handed_on(bench.relayed(RELAYED), executor)]
    finally:
        bench.node.stop()


if __name__ == "__main__":
    sys.exit(main())
