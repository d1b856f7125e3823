"""KV on its way: whose the blocks are, whatever crosses what."""

from __future__ import annotations

import threading

import pytest
from doubles import Clock, Told

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.decode import OWN, Incomings, Phase, View
from lynx_vllm.staging import Blocks

PROMPT = list(range(200))
PATIENCE = 10.0


@pytest.fixture
def incomings(told: Told, clock: Clock, blocks: Blocks) -> Incomings:
    incomings = Incomings(blocks, threading.RLock(), PATIENCE, clock)
    incomings.attached(told.append)
    return incomings


def expect(incomings: Incomings, request_id: str = "a", cached: int = 0) -> View | None:
    return incomings.expect(request_id, 9, PROMPT, cached, api.Sampling())


def phase(incomings: Incomings, request_id: str = "a") -> Phase:
    view = incomings.view(request_id)
    assert view is not None
    return view.phase


def test_the_agent_is_asked_once_by_a_number_of_the_engines_own(incomings: Incomings, told: Told) -> None:
    first = expect(incomings, cached=100)
    assert expect(incomings, cached=100) == first
    assert told.kinds() == ["expect"]
    asked = told[0].expect
    assert asked.request & OWN
    assert (asked.client, asked.from_token, len(asked.blocks), len(asked.tokens)) == (9, 64, 4, 200)


def test_blocks_change_hands_as_the_contract_says(incomings: Incomings, told: Told, blocks: Blocks) -> None:
    expect(incomings)
    number = told[0].expect.request
    assert phase(incomings) is Phase.EXPECTED
    incomings.want_grant(number)
    incomings.grant_returned(number)
    assert phase(incomings) is Phase.EXPECTED
    incomings.anchor_ready(api.AnchorReady(request=number, depth_limit=7))
    assert phase(incomings) is Phase.LENT
    incomings.want_grant(number)
    assert phase(incomings) is Phase.GRANTED
    assert told.kinds() == ["expect", "write_grant"]
    incomings.grant_returned(number)
    assert phase(incomings) is Phase.LENT
    incomings.full_ready(number, is_exact=True)
    view = incomings.view("a")
    assert view is not None
    assert (view.phase, view.is_anchored, view.depth_limit, view.is_exact) == (Phase.FULL, True, 7, True)
    assert blocks.free == 2
    incomings.used("a")
    incomings.used("a")
    assert blocks.free == 6
    assert phase(incomings) is Phase.FULL


@pytest.mark.parametrize("last", ["anchor", "returned", "full", "failed"])
def test_a_request_that_ends_while_its_blocks_are_the_agents_keeps_them_until_its_next_word(
    incomings: Incomings, told: Told, blocks: Blocks, last: str
) -> None:
    expect(incomings)
    number = told[0].expect.request
    if last == "returned":
        incomings.anchor_ready(api.AnchorReady(request=number))
        incomings.want_grant(number)
    incomings.finished("a", api.FINISH_REASON_ABORTED)
    assert told[-1].finished.reason == api.FINISH_REASON_ABORTED
    assert blocks.free == 2
    words = {
        "anchor": lambda: incomings.anchor_ready(api.AnchorReady(request=number)),
        "returned": lambda: incomings.grant_returned(number),
        "full": lambda: incomings.full_ready(number, is_exact=True),
        "failed": lambda: incomings.kv_failed(number, "aborted"),
    }
    words[last]()
    words[last]()
    assert blocks.free == 6
    assert incomings.view("a") is None


def test_a_request_that_ends_while_its_blocks_are_the_engines_gives_them_back_at_once(
    incomings: Incomings, told: Told, blocks: Blocks
) -> None:
    expect(incomings)
    number = told[0].expect.request
    incomings.anchor_ready(api.AnchorReady(request=number))
    incomings.finished("a", api.FINISH_REASON_STOP)
    assert blocks.free == 6
    incomings.want_grant(number)
    assert told.kinds() == ["expect", "finished"]


def test_kv_that_fails_gives_its_blocks_back_and_says_why(incomings: Incomings, told: Told, blocks: Blocks) -> None:
    expect(incomings)
    incomings.kv_failed(told[0].expect.request, "no peer")
    view = expect(incomings)
    assert view is not None
    assert (view.phase, view.reason, view.staging) == (Phase.FAILED, "no peer", ())
    assert blocks.free == 6
    incomings.recomputing("a")
    incomings.recomputing("a")
    assert told.kinds() == ["expect", "progress"]
    assert told[1].progress.events[0].recomputing.reason == "no peer"


def test_an_agent_that_is_gone_fails_what_it_has_not_finished_and_nothing_else(
    incomings: Incomings, told: Told, blocks: Blocks
) -> None:
    expect(incomings, "a")
    incomings.full_ready(told[0].expect.request, is_exact=True)
    incomings.used("a")
    expect(incomings, "b")
    incomings.lost()
    assert phase(incomings, "a") is Phase.FULL
    assert phase(incomings, "b") is Phase.FAILED
    assert blocks.free == 6
    assert expect(incomings, "c") is None
    incomings.attached(told.append)
    incomings.recomputing("b")
    incomings.finished("b", api.FINISH_REASON_STOP)
    # Of requests of a stream that has ended nothing is said on another.
    assert told.kinds() == ["expect", "expect"]


def test_requests_wait_for_blocks_for_a_while(incomings: Incomings, told: Told, clock: Clock) -> None:
    expect(incomings, "a")
    waiting = expect(incomings, "b")
    assert waiting is not None
    assert waiting.phase is Phase.EXPECTED
    assert told.kinds() == ["expect"]
    clock.now += PATIENCE
    assert expect(incomings, "b") is None


def test_a_prompt_that_never_fits_waits_for_nothing(incomings: Incomings) -> None:
    assert incomings.expect("a", 9, list(range(7 * 64)), 0, api.Sampling()) is None


def test_a_request_gives_up_an_agent_that_says_nothing(
    incomings: Incomings, told: Told, clock: Clock, blocks: Blocks
) -> None:
    expect(incomings)
    clock.now += PATIENCE + 1
    view = expect(incomings)
    assert view is not None
    assert view.phase is Phase.FAILED
    assert told.kinds() == ["expect", "finished"]
    # It may still write.
    assert blocks.free == 2
    incomings.full_ready(told[0].expect.request, is_exact=True)
    assert blocks.free == 6
    assert phase(incomings) is Phase.FAILED
    incomings.finished("a", api.FINISH_REASON_STOP)
    assert told.kinds() == ["expect", "finished"]


def test_verified_tokens_are_told_with_their_places(incomings: Incomings, told: Told) -> None:
    expect(incomings)
    incomings.tell_tokens("a", [5, 6], 1, 2)
    incomings.tell_tokens("a", [7], 3, 4)
    events = [event.token for message in told[1:] for event in message.progress.events]
    assert [(token.index, token.token, token.provisional) for token in events] == [
        (0, 5, False),
        (1, 6, False),
        (2, 7, False),
    ]


def test_forgetting_ends_what_the_agent_knows_and_has_the_engine_compute(
    incomings: Incomings, told: Told, blocks: Blocks
) -> None:
    expect(incomings)
    incomings.forget()
    assert told.kinds() == ["expect", "finished"]
    assert phase(incomings) is Phase.FAILED
    assert blocks.free == 6
