"""Faults at chosen bytes of a transfer, many of them: the engine computes the prompt itself, every time.

A relay between the decode agent and the prefill agent counts bytes and does what a broken network or a dead peer does at
the byte that a seed chooses. All of it happens before the decode agent has everything.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import client
import pair
import scenarios
from nodes import AGENT, DATA_PORT, ENGINE, INTERVAL_S, PEER_PORT, PREFILL, Nodes, Unmet, until
from relay import FROM_TARGET, TO_TARGET, Fault, Relay

if TYPE_CHECKING:
    from faults import World

RATE = "200mbit"
TOKENS = 6
QUESTIONS = [
    "Name three rivers of Europe, and say where each of them flows into the sea.",
    "Which animals live in the forests of Scandinavia? Tell me how they spend the winter.",
    "What does a compiler do with a loop whose bounds it knows? Give one example of such a loop.",
    "Why is the sky blue at noon and red in the evening? Explain it to a child in two sentences.",
]
SHORT, LONG = 60, 1000
# After so many a line, and a look for leaks.
LOOK_EVERY = 20
PATIENCE_S = 40.0
# A fault after this share of a transfer's bytes could come too late to be one.
LAST = 0.95

# How often each kind is chosen, and on which relay and in which direction it happens.
KINDS = {
    "cut": (20, "data", FROM_TARGET),
    "close": (20, "data", FROM_TARGET),
    "corrupt": (20, "data", FROM_TARGET),
    "corrupt acknowledgements": (5, "data", TO_TARGET),
    "cut control": (8, "control", FROM_TARGET),
    "corrupt control": (8, "control", FROM_TARGET),
    "corrupt question": (6, "control", TO_TARGET),
    "stall": (2, "data", FROM_TARGET),
    "stop agent": (1, "data", FROM_TARGET),
    "kill agent": (5, "data", FROM_TARGET),
    "kill engine": (5, "data", FROM_TARGET),
}


@dataclass
class Draw:
    """One fault of a seed's sequence."""

    number: int
    kind: str
    question: int
    cold: bool
    # Where in the transfer's bytes.
    share: float


def draw(seed: int, number: int) -> Draw:
    dice = random.Random(f"{seed}/{number}")
    (kind,) = dice.choices(list(KINDS), [weight for weight, _, _ in KINDS.values()])
    return Draw(number, kind, dice.randrange(len(QUESTIONS)), dice.random() < 0.25, dice.random() * LAST)


class Storm:
    """One fault after the other on one pair of nodes behind relays."""

    def __init__(self, world: World, nodes: Nodes, relays: dict[str, Relay]) -> None:
        self.nodes = nodes
        self.relays = relays
        self.bench = scenarios.Bench(nodes, world.question(), world.name)
        self.expected = world.answers[1:]
        # By question, relay and direction: what a transfer takes.
        self.bytes: dict[tuple[int, str, str], int] = {}
        self.slowest = 0.0
        self.slowest_recovery = 0.0

    def ask(self, question: int) -> client.Answer:
        return client.ask(self.nodes.decode.http, QUESTIONS[question], TOKENS, PATIENCE_S)

    def learn(self) -> None:
        """What each transfer takes when nothing happens."""
        for question, expected in enumerate(self.expected):
            self.nodes.forget()
            before = {name: dict(relay.passed) for name, relay in self.relays.items()}
            answer = self.ask(question)
            if answer.text != expected or not answer.has("full-ready"):
                raise Unmet(f"without a fault the answer is {answer.text!r} ({answer.error}), not {expected!r}")
            for name, relay in self.relays.items():
                for direction, passed in relay.passed.items():
                    self.bytes[question, name, direction] = passed - before[name][direction]
        self.nodes.forget()
        until("nothing is in flight", self.nodes.is_quiet)
        self.bench.before = {role: node.figures() for role, node in self.nodes.nodes.items()}

    def strike(self, drawn: Draw) -> tuple[bool, client.Answer]:
        """Whether the fault happened, and what the client got."""
        _, name, direction = KINDS[drawn.kind]
        self.nodes.decode.forget()
        if drawn.cold:
            self.nodes.prefill.forget()
        after = int(drawn.share * self.bytes[drawn.question, name, direction])
        prefill = self.nodes.prefill.processes
        action = {
            "kill agent": lambda: prefill[AGENT].signal(signal.SIGKILL),
            "kill engine": lambda: prefill[ENGINE].signal(signal.SIGKILL),
            "stop agent": lambda: prefill[AGENT].signal(signal.SIGSTOP),
        }.get(drawn.kind)
        kind = drawn.kind.split()[0] if action is None else "call"
        fault = self.relays[name].arm(Fault(kind, direction, after, action or (lambda: None)))
        answer = self.ask(drawn.question)
        self.relays[name].disarm()
        if answer.error is not None or answer.text != self.expected[drawn.question]:
            raise Unmet(f"{drawn}: the client got {answer.text!r}, error {answer.error}")
        self.recover(drawn)
        return fault.fired.is_set(), answer

    def recover(self, drawn: Draw) -> None:
        begun = time.monotonic()
        process = {"kill agent": AGENT, "kill engine": ENGINE, "stop agent": AGENT}.get(drawn.kind)
        if drawn.kind == "stop agent":
            self.nodes.prefill.processes[AGENT].signal(signal.SIGCONT)
        elif process is not None:
            time.sleep(INTERVAL_S)
            if self.nodes.prefill.processes[process].has_ended():
                self.nodes.prefill.processes[process].close()
                self.nodes.prefill.restart(process)
        if drawn.kind == "stall":
            self.relays["data"].cut()
        until("both data connections are up", lambda: len(self.relays["data"].pairs) == 2)
        self.nodes.wait()
        self.slowest_recovery = max(self.slowest_recovery, time.monotonic() - begun)
        if process is not None:
            until("nothing is in flight", self.nodes.is_quiet)
            self.bench.before[PREFILL] = self.nodes.prefill.figures()


def run(world: World) -> scenarios.Row:
    """As many faults as asked for, and the nodes as they were before."""
    wanted = LONG if world.long else SHORT
    here = pair.ADDRESSES["a"]
    relays = {"control": Relay((here, PEER_PORT)), "data": Relay((here, DATA_PORT))}
    pair.shape(world.name, RATE)
    happened: Counter[str] = Counter()
    missed = 0
    begun = time.monotonic()
    with Nodes(world.options(), relays["control"].address, relays["data"].address) as nodes:
        storm = Storm(world, nodes, relays)
        storm.learn()
        number = world.first
        while happened.total() < wanted:
            drawn = draw(world.seed, number)
            try:
                fired, answer = storm.strike(drawn)
            except Unmet as unmet:
                raise Unmet(f"{unmet}; again from there: --seed {world.seed} --first {number} --only bytewise") from unmet
            storm.slowest = max(storm.slowest, answer.seconds)
            if fired and not answer.has("full-ready"):
                happened[drawn.kind] += 1
            else:
                missed += 1
            number += 1
            if number % LOOK_EVERY == 0:
                storm.bench.look_for_leaks(None)
                world.say(f"bytewise: {happened.total()} of {wanted} faults, all answered right")
        time_s = time.monotonic() - begun
        storm.bench.look_for_leaks(None)
    kinds = ", ".join(f"{count} {kind}" for kind, count in happened.most_common())
    world.say(f"bytewise: {happened.total()} faults in {time_s:.0f} s ({kinds}); {missed} more came to nothing")
    got = f"{happened.total()} of {happened.total()} answers right, computed locally"
    pair.shape(world.name, scenarios.RATE)
    return scenarios.Row("faults at chosen bytes", "before full ready", got, None, storm.slowest, storm.slowest_recovery)
