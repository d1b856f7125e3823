"""What a decode engine does with requests whose KV is on its way, against a scheduler of a few lines.

The scheduler's model says the n-th token after a prompt: one by the whole KV, another by an anchor where a test says so.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.decode import Incomings
from lynx_vllm.drafting import Drafts
from lynx_vllm.receiving import Ask, Receiving
from lynx_vllm.staging import RECOMPUTED, Blocks

PROMPT = list(range(1000, 1150))
END = 7


@dataclass
class Request:
    """A request as vLLM has it: its tokens, how many are computed, and what is to be verified."""

    max_tokens: int = 20
    output: list[int] = field(default_factory=list)
    computed: int = 0
    spec: list[int] = field(default_factory=list)
    #: Whether the KV that it has is exact.
    is_exact: bool = True
    told: list[int] = field(default_factory=list)
    has_stopped: bool = False

    def append(self, token: int) -> None:
        self.output.append(token)

    def rewind(self, computed: int, drafts: list[int]) -> None:
        self.output.clear()
        self.computed = computed
        self.spec = drafts

    def ends_with(self, token: int, length: int) -> bool:
        return token == END

    def most_drafts(self) -> int:
        return self.max_tokens - 1


class Scheduler:
    """One request, step by step."""

    def __init__(self, answer: list[int], draft: list[int] | None = None, most: int = 4, **request: int) -> None:
        self.told: list[api.FromEngine] = []
        self.blocks = Blocks(10)
        self.incomings = Incomings(self.blocks, threading.RLock(), 60.0)
        self.incomings.attached(self.told.append)
        self.receiving = Receiving(self.incomings)
        self.receiving.drafts = Drafts(most)
        self.answer, self.draft = answer, draft or answer
        self.request = Request(**request)
        self.is_running = False
        self.forwards = 0
        self.rows = 0
        self.hashed_tainted = False
        self.may_draft = True

    @property
    def number(self) -> int:
        return self.told[0].expect.request

    def anchor(self, depth: int = 100) -> None:
        self.incomings.anchor_ready(api.AnchorReady(request=self.number, depth_limit=depth))

    def full(self, is_exact: bool = True) -> None:
        self.incomings.full_ready(self.number, is_exact=is_exact)

    def preempt(self) -> None:
        self.is_running = False
        self.request.computed = 0
        self.request.spec = []
        self.receiving.preempted("a")

    def step(self) -> int:
        """One step; how many tokens it computed."""
        request = self.request
        self.receiving.before_step()
        if not self.is_running:
            ask = Ask("a", 3, PROMPT, api.Sampling(), self.may_draft, request)
            matched = self.receiving.matched(ask, 0)
            if matched is None:
                assert self.receiving.loads([]) == {}
                return 0
            request.computed = matched
            request.is_exact = matched == 0
            self.receiving.admitted("a", matched)
            self.is_running = True
        tokens = len(PROMPT) + len(request.output) + len(request.spec) - request.computed
        loads = self.receiving.loads(["a"] if tokens else [])
        if not tokens:
            return 0
        if "a" in loads:
            assert (loads["a"].first, loads["a"].end) == (0, len(PROMPT) - RECOMPUTED)
            assert len(loads["a"].staging) == 3
            request.is_exact = loads["a"].is_exact
        if request.computed == 0:
            request.is_exact = True
        self.forwards += 1
        self.rows += tokens
        request.computed += tokens
        self._sample()
        return tokens

    def _sample(self) -> None:
        request = self.request
        said = self.answer if request.is_exact else self.draft
        sampled: list[int] = []
        for place, draft in enumerate([*request.spec, None], start=len(request.output)):
            sampled.append(said[place])
            if said[place] != draft:
                break
        request.computed -= len(request.spec) - (len(sampled) - 1)
        request.spec = []

        def update() -> tuple[list[int], bool]:
            kept = []
            for token in sampled:
                request.append(token)
                kept.append(token)
                if token == END or len(request.output) >= request.max_tokens:
                    request.has_stopped = True
                    break
            return kept, request.has_stopped

        drafts = self.receiving.drafts
        assert drafts is not None
        told, _, verified = drafts.took("a", sampled, update)
        request.told += told
        if verified is not None:
            self.receiving.verified("a", verified, 0)

    def run(self) -> list[int]:
        """Steps until it stops."""
        for _ in range(100):
            if self.request.has_stopped:
                self.receiving.finished("a", api.FINISH_REASON_STOP)
                return self.request.told
            self.step()
        raise AssertionError(f"no end: {self.request}")


ANSWER = list(range(20))
ANSWER[7] = 70


def verified(scheduler: Scheduler) -> list[tuple[int, int]]:
    events = [event for message in scheduler.told for event in message.progress.events]
    return [(e.verified.drafted, e.verified.kept) for e in events if e.WhichOneof("kind") == "verified"]


def test_a_draft_that_is_right_is_verified_in_one_forward_pass() -> None:
    scheduler = Scheduler(ANSWER)
    assert scheduler.step() == 0
    scheduler.anchor()
    assert [scheduler.step() for _ in range(6)] == [RECOMPUTED, 1, 1, 1, 0, 0]
    assert scheduler.request.told == []
    scheduler.full()
    assert scheduler.step() == RECOMPUTED + 4
    assert scheduler.request.told == ANSWER[:5]
    assert verified(scheduler) == [(4, 4)]
    assert scheduler.run() == ANSWER
    assert scheduler.blocks.free == 10


@pytest.mark.parametrize("wrong", range(4))
def test_a_draft_is_kept_as_far_as_it_is_right(wrong: int) -> None:
    draft = ANSWER.copy()
    draft[wrong] = 99
    scheduler = Scheduler(ANSWER, draft)
    scheduler.step()
    scheduler.anchor()
    for _ in range(4):
        scheduler.step()
    scheduler.full()
    scheduler.step()
    assert verified(scheduler) == [(4, wrong)]
    assert scheduler.run() == ANSWER


@pytest.mark.parametrize("steps", range(7))
def test_the_answer_does_not_depend_on_when_the_rest_comes(steps: int) -> None:
    draft = [token + 50 if place % 3 == 2 else token for place, token in enumerate(ANSWER)]
    scheduler = Scheduler(ANSWER, draft)
    scheduler.step()
    scheduler.anchor()
    for _ in range(steps):
        scheduler.step()
    scheduler.full()
    assert scheduler.run() == ANSWER


@pytest.mark.parametrize("steps", range(7))
def test_kv_that_fails_while_it_is_drafted_on_is_computed(steps: int) -> None:
    scheduler = Scheduler(ANSWER, [99] * 20)
    scheduler.step()
    scheduler.anchor()
    for _ in range(steps):
        scheduler.step()
    scheduler.incomings.kv_failed(scheduler.number, "lost")
    assert scheduler.step() == len(PROMPT)
    assert scheduler.run() == ANSWER
    assert scheduler.blocks.free == 10


@pytest.mark.parametrize("steps", range(7))
@pytest.mark.parametrize("is_full", [False, True])
def test_a_request_that_is_preempted_begins_anew_and_says_the_same(steps: int, is_full: bool) -> None:
    scheduler = Scheduler(ANSWER, [0, 1, 99, 3, 4])
    scheduler.step()
    scheduler.anchor()
    for _ in range(steps):
        scheduler.step()
    if is_full:
        scheduler.full()
        scheduler.receiving.before_step()
    scheduler.preempt()
    assert scheduler.request.output == []
    scheduler.step()
    scheduler.full()
    assert scheduler.run() == ANSWER
    assert scheduler.blocks.free == 10


@pytest.mark.parametrize("place", range(6))
def test_the_end_of_the_text_within_a_draft_pauses_it_and_tells_nothing(place: int) -> None:
    answer = ANSWER.copy()
    answer[place] = END
    scheduler = Scheduler(answer, most=12)
    scheduler.step()
    scheduler.anchor()
    for _ in range(9):
        scheduler.step()
    assert scheduler.request.told == []
    assert scheduler.forwards == place + 1
    scheduler.full()
    assert scheduler.run() == answer[: place + 1]


def test_an_end_that_only_the_draft_says_is_no_end() -> None:
    scheduler = Scheduler(ANSWER, [0, END, 2, 3], most=12)
    scheduler.step()
    scheduler.anchor()
    for _ in range(5):
        scheduler.step()
    assert scheduler.forwards == 2
    scheduler.full()
    assert scheduler.run() == ANSWER


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5, 6])
def test_a_draft_is_no_longer_than_the_answer_may_be(max_tokens: int) -> None:
    scheduler = Scheduler(ANSWER, max_tokens=max_tokens)
    scheduler.step()
    scheduler.anchor()
    for _ in range(8):
        scheduler.step()
    assert scheduler.forwards == min(4, max_tokens - 1)
    scheduler.full()
    assert scheduler.run() == ANSWER[:max_tokens]


def test_the_agents_limit_holds_and_may_be_raised() -> None:
    scheduler = Scheduler(ANSWER, most=12)
    scheduler.step()
    scheduler.anchor(depth=2)
    for _ in range(5):
        scheduler.step()
    assert scheduler.forwards == 2
    scheduler.anchor(depth=5)
    for _ in range(5):
        scheduler.step()
    assert scheduler.forwards == 5
    scheduler.full()
    scheduler.step()
    assert verified(scheduler) == [(5, 5)]
    assert scheduler.run() == ANSWER


@pytest.mark.parametrize("hindrance", ["depth", "sampling", "class"])
def test_where_nothing_may_be_drafted_all_the_bits_are_waited_for(hindrance: str) -> None:
    scheduler = Scheduler(ANSWER)
    scheduler.may_draft = hindrance != "sampling"
    scheduler.step()
    drafts, scheduler.receiving.drafts = scheduler.receiving.drafts, None
    if hindrance != "class":
        scheduler.receiving.drafts = drafts
    scheduler.anchor(depth=0 if hindrance == "depth" else 100)
    assert [scheduler.step() for _ in range(3)] == [0, 0, 0]
    scheduler.full()
    scheduler.receiving.drafts = drafts
    assert scheduler.step() == RECOMPUTED
    assert scheduler.run() == ANSWER
    assert verified(scheduler) == []


def test_less_than_exact_kv_never_reaches_the_prefix_cache() -> None:
    scheduler = Scheduler(ANSWER)
    scheduler.step()
    scheduler.anchor()
    scheduler.step()
    assert scheduler.receiving.is_tainted("a")
    scheduler.full(is_exact=False)
    scheduler.step()
    assert scheduler.receiving.is_tainted("a")
    scheduler.run()
    assert not scheduler.receiving.is_tainted("a")


def test_exact_kv_does_once_it_is_there() -> None:
    scheduler = Scheduler(ANSWER)
    scheduler.step()
    scheduler.anchor()
    scheduler.step()
    scheduler.full()
    scheduler.receiving.before_step()
    assert not scheduler.receiving.is_tainted("a")


def test_all_the_bits_that_come_between_two_looks_are_loaded_at_once() -> None:
    scheduler = Scheduler(ANSWER, [99] * 20)
    scheduler.step()
    scheduler.anchor()
    ask = Ask("a", 3, PROMPT, api.Sampling(), True, scheduler.request)
    matched = scheduler.receiving.matched(ask, 0)
    assert matched == len(PROMPT) - RECOMPUTED
    scheduler.full()
    scheduler.receiving.admitted("a", matched)
    assert scheduler.receiving.loads(["a"])["a"].is_exact
    assert not scheduler.receiving.is_tainted("a")


def test_a_prefix_that_vllm_has_lost_meanwhile_makes_the_transfer_useless() -> None:
    scheduler = Scheduler(ANSWER)
    ask = Ask("a", 3, PROMPT, api.Sampling(), True, scheduler.request)
    assert scheduler.receiving.matched(ask, 128) is None
    assert scheduler.told[0].expect.from_token == 128
    scheduler.full()
    assert scheduler.receiving.matched(ask, 0) == 0
    assert scheduler.receiving.matched(ask, 128) == 0
    assert scheduler.blocks.free == 10


def test_a_prompt_that_vllm_has_already_is_asked_of_nobody() -> None:
    scheduler = Scheduler(ANSWER)
    ask = Ask("a", 3, PROMPT[:65], api.Sampling(), True, scheduler.request)
    assert scheduler.receiving.matched(ask, 64) == 0
    assert scheduler.told == []


def choice(scheduler: Scheduler, name: str, prompt: list[int] = PROMPT, client: int = 3) -> Ask:
    return Ask(name, client, prompt, api.Sampling(), False, scheduler.request)


def expected(scheduler: Scheduler) -> int:
    return sum(message.WhichOneof("kind") == "expect" for message in scheduler.told)


def test_choices_of_one_request_are_brought_kv_once_and_find_it_in_the_prefix_cache() -> None:
    scheduler = Scheduler(ANSWER)
    receiving = scheduler.receiving
    first, second = choice(scheduler, "a"), choice(scheduler, "b")
    assert [receiving.matched(ask, 0) for ask in (first, second)] == [None, None]
    assert receiving.matched(choice(scheduler, "c", client=4), 0) is None
    assert receiving.matched(choice(scheduler, "d", PROMPT[1:]), 0) is None
    assert expected(scheduler) == 3
    scheduler.full()
    # A sibling that is looked at first waits on.
    assert receiving.matched(second, 0) is None
    assert receiving.matched(first, 0) == len(PROMPT) - RECOMPUTED
    receiving.admitted("a", len(PROMPT) - RECOMPUTED)
    receiving.loads(["a"])
    assert receiving.matched(second, 128) is None
    receiving.loads(["a"])
    assert receiving.matched(second, 128) == 0
    assert expected(scheduler) == 3


@pytest.mark.parametrize("came", ["nothing", "all"])
def test_a_choice_whose_sibling_has_gone_asks_for_itself_unless_the_cache_has_it(came: str) -> None:
    scheduler = Scheduler(ANSWER)
    receiving = scheduler.receiving
    first, second, third = (choice(scheduler, name) for name in "abc")
    assert [receiving.matched(ask, 0) for ask in (first, second, third)] == [None, None, None]
    if came == "all":
        scheduler.full()
        receiving.matched(first, 0)
        receiving.admitted("a", len(PROMPT) - RECOMPUTED)
        receiving.loads(["a"])
        receiving.loads([])
    receiving.finished("a", api.FINISH_REASON_ABORTED)
    if came == "all":
        assert receiving.matched(second, 128) == 0
        assert expected(scheduler) == 1
        # Evicted meanwhile.
        assert receiving.matched(third, 0) is None
        assert expected(scheduler) == 2
    else:
        assert receiving.matched(second, 0) is None
        assert receiving.matched(third, 0) is None
        assert expected(scheduler) == 2
    for name in "bc":
        receiving.finished(name, api.FINISH_REASON_ABORTED)
    assert receiving.matched(choice(scheduler, "e"), 0) is None
    assert expected(scheduler) == 3


def test_choices_compute_the_prompt_where_nothing_can_be_had() -> None:
    scheduler = Scheduler(ANSWER)
    first, second = choice(scheduler, "a"), choice(scheduler, "b")
    assert [scheduler.receiving.matched(ask, 0) for ask in (first, second)] == [None, None]
    scheduler.incomings.kv_failed(scheduler.number, "no peer")
    assert scheduler.receiving.matched(first, 0) == 0
    assert scheduler.receiving.matched(second, 128) == 0
    assert expected(scheduler) == 1
