"""What can go wrong with real processes on a real link, and what must come of it: an answer that is right, or an error
that says so, in bounded time; and a pair of nodes that then works as before and keeps nothing."""

from __future__ import annotations

import datetime
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import client
import pair
from nodes import AGENT, DECODE, ENGINE, INTERVAL_S, PREFILL, Nodes, Unmet, until

# The link of the scenarios: narrow enough that every phase takes a while.
RATE = "12mbit"
# How long a client may wait in all. The scenarios' own bounds are tighter.
PATIENCE_S = 60.0
# More than are drafted at a time, so that some are decoded.
TOKENS = 80
# Whether drafts pay is the decode agent's to decide, by what it has measured of late: on a busy machine they may not, for a while.
ATTEMPTS = 12
# What a survivor may have more of after a fault than before, at most: descriptors, of which peer control's
# connection may have been between two lives; KiB.
MORE_DESCRIPTORS, MORE_KIB = 2, 24 << 10

# Bounds of docs/agents.md, "When something fails". Computing the prompt and answering is on top of these. The one of kills
# holds for their median: a machine that is busy with other things takes longer to end a process.
KILL_NOTICED_S = 0.2
KILL_NOTICED_AT_MOST_S = 1.0
CUT_NOTICED_S = 2.0
STOP_NOTICED_S = 8.0
# What a busy machine takes to compute the prompt and the answer, at most.
COMPUTE_S = 20.0

LOCAL = re.compile(r"^(\S+Z) .*the engine computes the prompt: (.*)$", re.MULTILINE)


@dataclass
class Question:
    """A question, and what the model alone answers."""

    text: str
    expected: str


@dataclass
class Row:
    """One scenario's outcome, for the table."""

    fault: str
    phase: str
    got: str
    noticed_s: float | None
    answered_s: float
    recovered_s: float


def event(name: str, **fields: object) -> Callable[[dict], bool]:
    return lambda told: told["event"] == name and all(told.get(key) == value for key, value in fields.items())


def bytes_of(priority: str, share: float) -> Callable[[dict], bool]:
    """So much of what a transfer of this class takes. The totals are those of the question on a quiet link."""
    return lambda told: (
        told["event"] == "sent" and told["priority"] == priority and told["bytes"] >= share * TOTALS[priority]
    )


# What each class takes on the link, filled in by the first transfer.
TOTALS = {"anchor": 0, "residual": 0}

# By phase: whether the prefill node has the prompt before, and when the phase has come.
PHASES: dict[str, tuple[bool, Callable[[dict], bool]]] = {
    "accepted": (False, event("accepted")),
    "prefill begun": (False, event("prefill-layer")),
    "layer 15 published": (False, event("prefill-layer", layer=15)),
    "half of the anchor": (True, bytes_of("anchor", 0.5)),
    "anchor ready": (True, event("anchor-ready")),
    "drafting": (True, event("draft")),
    "half of the residual": (True, bytes_of("residual", 0.5)),
    "full ready": (True, event("full-ready")),
    "verified": (True, event("verify")),
    "decoding": (True, event("decode")),
}


class Bench:
    """A pair of nodes that goes from one scenario to the next."""

    def __init__(self, nodes: Nodes, question: Question, cable: str) -> None:
        self.nodes = nodes
        self.question = question
        self.cable = cable
        self.before: dict = {}

    def prepare(self, warm: bool) -> None:
        self.nodes.forget()
        if warm:
            # The same words as the chat template makes of the question: the decode agent asks for it, and forgets it.
            self.ask()
            self.nodes.decode.forget()

    def ask(self, watch: Callable[[dict], None] = lambda told: None, patience_s: float = PATIENCE_S) -> client.Answer:
        return client.ask(self.nodes.decode.http, self.question.text, TOKENS, patience_s, watch)

    def settle(self) -> None:
        """The level to which everything comes back."""
        self.prepare(warm=False)
        answer = self.ask()
        self.expect(answer, is_transfer=True)
        for priority, total in answer.sent().items():
            TOTALS[priority] = total
        until("nothing is in flight", self.nodes.is_quiet)
        self.before = {role: node.figures() for role, node in self.nodes.nodes.items()}

    def expect(self, answer: client.Answer, is_transfer: bool | None = None) -> None:
        if answer.error is not None:
            raise Unmet(f"the client got an error: {answer.error}")
        if answer.text != self.question.expected:
            raise Unmet(f"the answer is {answer.text!r}, and the model alone says {self.question.expected!r}")
        if is_transfer is not None and answer.has("full-ready") != is_transfer:
            raise Unmet("the KV came by a transfer" if answer.has("full-ready") else "the KV did not come")

    def inject(self, phase: str, fault: Callable[[], None]) -> tuple[client.Answer, float, float]:
        """Asks, and lets `fault` happen in this phase: the answer, when that was by the monotonic and by the wall clock."""
        warm, is_now = PHASES[phase]
        happened: list[float] = []

        def watch(told: dict) -> None:
            if not happened and is_now(told):
                happened.extend([time.monotonic(), time.time()])
                fault()

        for _ in range(ATTEMPTS):
            self.prepare(warm)
            answer = self.ask(watch)
            if happened:
                return answer, happened[0], happened[1]
            self.expect(answer)
        raise Unmet(f"the phase {phase!r} did not come in {ATTEMPTS} answers")

    def noticed(self, wall: float, patience_s: float) -> float | None:
        """How long after `wall` the decode agent gave the transfer up; None where it did not."""
        for moment, _ in LOCAL.findall(self.nodes.log(DECODE, AGENT)):
            at = datetime.datetime.fromisoformat(moment).timestamp()
            if at >= wall - INTERVAL_S:
                if at - wall > patience_s:
                    raise Unmet(f"it was noticed after {at - wall:.3f} s, not within {patience_s:g} s")
                return max(at - wall, 0.0)
        return None

    def recover(self, restarted: tuple[str, str] | None = None) -> float:
        """Waits until the nodes work again, asks once more, and looks for what was left behind. How long until they
        worked. A process that was killed is started again, as a kubelet would."""
        begun = time.monotonic()
        if restarted is not None:
            self.nodes.nodes[restarted[0]].restart(restarted[1])
        self.nodes.wait()
        recovered = time.monotonic() - begun
        self.nodes.forget()
        self.expect(self.ask(), is_transfer=True)
        self.look_for_leaks(restarted)
        return recovered

    def look_for_leaks(self, restarted: tuple[str, str] | None) -> None:
        until("nothing is in flight", self.nodes.is_quiet, 10)
        left = self.nodes.segments()
        if left:
            raise Unmet(f"these were left in shared memory: {left}")
        for role, node in self.nodes.nodes.items():
            for what, process in node.processes.items():
                if process.has_ended():
                    raise Unmet(f"the {role} {what} has ended, which nobody asked of it: {process.child.returncode}")
                if (role, what) == restarted:
                    self.before[role] = {**self.before[role], what: node.figures()[what]}
                    continue
                before = self.before[role][what]
                until(
                    f"the {role} {what} has no more descriptors than before ({before[0]})",
                    lambda node=node, what=what, before=before: node.figures()[what][0] <= before[0] + MORE_DESCRIPTORS,
                    10,
                )
                resident = node.figures()[what][1]
                if resident > before[1] + MORE_KIB:
                    raise Unmet(f"the {role} {what} has grown from {before[1]} to {resident} KiB")


def killed(bench: Bench, role: str, what: str, phase: str) -> Row:
    """kill -9: the kernel closes what the process had, and that is noticed."""
    answer, at, wall = bench.inject(phase, lambda: bench.nodes.nodes[role].kill(what))
    noticed = bench.noticed(wall, KILL_NOTICED_AT_MOST_S)
    if role == PREFILL:
        bench.expect(answer)
        got = "the answer"
    elif what == ENGINE:
        got = error_of(answer, "service_unavailable")
    else:
        # Nobody is left to say anything: the connection ends.
        got = error_of(answer, "connection")
    bound = COMPUTE_S if role == PREFILL else 1.0
    within(answer.ended - at, bound)
    return Row(f"kill -9, {role} {what}", phase, got, noticed, answer.ended - at, bench.recover((role, what)))


def stopped(bench: Bench, role: str, what: str, phase: str) -> Row:
    """SIGSTOP: a process that hangs and holds everything it has. It goes on when its node has noticed."""
    process = bench.nodes.nodes[role].processes[what]
    answer, at, wall = bench.inject(phase, lambda: process.signal(signal.SIGSTOP))
    noticed = bench.noticed(wall, STOP_NOTICED_S if what == ENGINE else CUT_NOTICED_S)
    process.signal(signal.SIGCONT)
    if role == PREFILL:
        bench.expect(answer)
        got = "the answer"
    else:
        got = error_of(answer, "service_unavailable")
    within(answer.ended - at, STOP_NOTICED_S + COMPUTE_S)
    return Row(f"SIGSTOP, {role} {what}", phase, got, noticed, answer.ended - at, bench.recover())


def cut(bench: Bench, phase: str) -> Row:
    """The cable is pulled: silence, and no reset."""
    answer, at, wall = bench.inject(phase, lambda: pair.cut(bench.cable))
    noticed = bench.noticed(wall, CUT_NOTICED_S)
    bench.expect(answer)
    within(answer.ended - at, CUT_NOTICED_S + COMPUTE_S)
    # While it is out the decode node works alone.
    bench.nodes.decode.forget()
    bench.expect(bench.ask(), is_transfer=False)
    pair.mend(bench.cable)
    return Row("link cut", phase, "the answer", noticed, answer.ended - at, bench.recover())


def cut_and_back(bench: Bench, phase: str) -> Row:
    """The cable is out for a moment that TCP survives."""

    def blink() -> None:
        pair.cut(bench.cable)
        time.sleep(0.3)
        pair.mend(bench.cable)

    answer, at, _ = bench.inject(phase, blink)
    bench.expect(answer)
    within(answer.ended - at, CUT_NOTICED_S + COMPUTE_S)
    got = "the answer, by the transfer" if answer.has("full-ready") else "the answer"
    return Row("link cut for 0.3 s", phase, got, None, answer.ended - at, bench.recover())


def slowed(bench: Bench, phase: str) -> Row:
    """The link gets ten times as narrow in the middle of a transfer: late is not dead."""
    answer, at, _ = bench.inject(phase, lambda: pair.shape(bench.cable, "1.2mbit"))
    pair.shape(bench.cable, RATE)
    bench.expect(answer)
    within(answer.ended - at, PATIENCE_S)
    got = "the answer, by the transfer" if answer.has("full-ready") else "the answer"
    return Row("rate / 10", phase, got, None, answer.ended - at, bench.recover())


def error_of(answer: client.Answer, kind: str) -> str:
    if answer.error is None:
        raise Unmet(f"there is an answer, where none can be: {answer.text!r}")
    if answer.error.get("type") != kind or not answer.error.get("message"):
        raise Unmet(f"the client was told {answer.error}, where it should be a {kind} that says why")
    return "an end of the connection" if kind == "connection" else f"an error: {answer.error['message']}"


def within(seconds: float, bound: float) -> None:
    if seconds > bound:
        raise Unmet(f"it took {seconds:.1f} s, and may take {bound:g}")


def scenarios(long: bool) -> list[tuple[str, Callable[[Bench], Row]]]:
    """All of them by name, in an order that costs few restarts."""
    found: list[tuple[str, Callable[[Bench], Row]]] = []
    few = ["accepted", "layer 15 published", "half of the anchor", "drafting", "half of the residual", "decoding"]
    for role, what in [(PREFILL, AGENT), (PREFILL, ENGINE), (DECODE, ENGINE), (DECODE, AGENT)]:
        for phase in PHASES if long else few:
            found.append((f"kill {role} {what}, {phase}", lambda b, r=role, w=what, p=phase: killed(b, r, w, p)))
    for role, what, phases in [
        (PREFILL, AGENT, ["layer 15 published", "half of the residual"]),
        (PREFILL, ENGINE, ["prefill begun"]),
        (DECODE, ENGINE, ["drafting"]),
    ]:
        for phase in phases:
            found.append((f"stop {role} {what}, {phase}", lambda b, r=role, w=what, p=phase: stopped(b, r, w, p)))
    for phase in ["accepted", "half of the anchor", "drafting", "half of the residual"]:
        found.append((f"cut, {phase}", lambda b, p=phase: cut(b, p)))
    for phase in ["half of the anchor", "half of the residual"]:
        found.append((f"blink, {phase}", lambda b, p=phase: cut_and_back(b, p)))
        found.append((f"slow, {phase}", lambda b, p=phase: slowed(b, p)))
    return found
