"""Prompts that are computed for a decode node."""

from __future__ import annotations

import threading

import pytest
from doubles import Clock, Told

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.channel import Event, What
from lynx_vllm.prefill import MEETING, Match, Prefills, Save
from lynx_vllm.staging import Blocks

PROMPT = list(range(200))


@pytest.fixture
def prefills(told: Told, clock: Clock, blocks: Blocks) -> Prefills:
    prefills = Prefills(blocks, threading.RLock(), clock)
    prefills.attached(told.append)
    return prefills


def ask(prefills: Prefills, number: int = 1, from_token: int = 0) -> None:
    prefills.asked(api.Prefill(request=number, tokens=PROMPT, from_token=from_token))


def begin(prefills: Prefills, number: int = 1, cached: int = 0) -> int:
    match, key = prefills.match(number, PROMPT, cached)
    assert match is Match.SERVE
    prefills.begun(key, 5)
    return key


def test_a_prompt_in_two_chunks_is_told_layer_by_layer_and_ends_with_its_token(prefills: Prefills, told: Told) -> None:
    ask(prefills)
    key = begin(prefills)
    staging = tuple(told[0].prefill_started.blocks)
    assert len(set(staging)) == 4
    assert prefills.step(key, 128) == Save(key, staging, 0, 0, 128)
    prefills.heard(Event(What.SAVED, key, layer=3, first=0, end=128, start_unix_ns=7, end_unix_ns=9))
    assert prefills.step(key, 200) == Save(key, staging, 128, 128, 200)
    prefills.heard(Event(What.DONE, key, end=42))
    assert told.kinds() == ["prefill_started", "published", "prefill_done", "finished"]
    published = told[1].published
    assert (published.layer, published.first_token, published.end_token) == (3, 0, 128)
    assert (published.start_unix_ns, published.end_unix_ns) == (7, 9)
    assert told[2].prefill_done.first_token == 42


def test_blocks_are_the_agents_until_it_releases_them(prefills: Prefills, told: Told, blocks: Blocks) -> None:
    ask(prefills)
    key = begin(prefills)
    prefills.step(key, 200)
    prefills.heard(Event(What.DONE, key, end=1))
    assert blocks.free == 2
    prefills.released(1)
    assert blocks.free == 6
    prefills.released(1)
    assert blocks.free == 6


def test_the_http_request_waits_for_the_streams_and_no_longer_than_it_should(prefills: Prefills, clock: Clock) -> None:
    assert prefills.match(1, PROMPT, 0) == (Match.WAIT, 0)
    ask(prefills)
    assert prefills.match(1, PROMPT, 0)[0] is Match.SERVE
    assert prefills.match(2, PROMPT, 0) == (Match.WAIT, 0)
    clock.now += MEETING
    assert prefills.match(2, PROMPT, 0) == (Match.PLAIN, 0)


def test_without_an_agent_nothing_waits(prefills: Prefills) -> None:
    prefills.lost()
    assert prefills.match(1, PROMPT, 0) == (Match.PLAIN, 0)


def test_the_streams_request_waits_for_the_http_one_and_is_refused_in_the_end(
    prefills: Prefills, told: Told, clock: Clock
) -> None:
    ask(prefills)
    prefills.sweep()
    clock.now += MEETING + 1
    prefills.sweep()
    assert told.kinds() == ["refused"]
    assert told[0].refused.retryable
    assert prefills.count == 0


def test_requests_wait_for_blocks_that_others_have(prefills: Prefills, told: Told) -> None:
    ask(prefills, 1)
    ask(prefills, 2)
    key = begin(prefills, 1)
    assert prefills.match(2, PROMPT, 0) == (Match.WAIT, 0)
    prefills.heard(Event(What.ENDED, key))
    prefills.released(1)
    assert prefills.match(2, PROMPT, 0)[0] is Match.SERVE


@pytest.mark.parametrize(
    ("prefill", "why"),
    [
        (api.Prefill(request=1, tokens=PROMPT, from_token=63), "multiple of 64"),
        (api.Prefill(request=1, tokens=PROMPT, from_token=256), "multiple of 64"),
        (api.Prefill(request=1), "multiple of 64"),
        (api.Prefill(request=1, tokens=range(400)), "make it larger"),
    ],
)
def test_what_can_not_be_done_is_refused_at_once(
    prefills: Prefills, told: Told, prefill: api.Prefill, why: str
) -> None:
    if not prefill.tokens:
        prefill.from_token = 64
    prefills.asked(prefill)
    assert told.kinds() == ["refused"]
    assert why in told[0].refused.reason


def test_another_prompt_under_the_same_number_is_refused(prefills: Prefills, told: Told) -> None:
    ask(prefills)
    assert prefills.match(1, PROMPT[:-1], 0) == (Match.PLAIN, 0)
    assert told.kinds() == ["refused"]
    assert prefills.count == 0


def test_what_the_prefix_cache_has_is_copied_first_and_told_when_it_is(prefills: Prefills, told: Told) -> None:
    ask(prefills)
    key = begin(prefills, cached=128)
    assert told == []
    save = prefills.step(key, 200)
    assert save is not None
    assert (save.first, save.early, save.end) == (0, 128, 200)
    prefills.heard(Event(What.CACHED, key, end=128))
    assert told.kinds() == ["prefill_started"]
    assert told[0].prefill_started.cached_tokens == 128


def test_what_the_decode_node_has_is_not_copied(prefills: Prefills, told: Told) -> None:
    ask(prefills, from_token=128)
    key = begin(prefills, cached=64)
    assert told[0].prefill_started.cached_tokens == 64
    assert prefills.step(key, 128) is None
    save = prefills.step(key, 200)
    assert save is not None
    assert (save.first, save.early, save.end) == (128, 128, 200)


def test_a_preempted_prompt_goes_on_where_it_was_saved_whatever_it_begins_with_anew(
    prefills: Prefills, told: Told
) -> None:
    ask(prefills)
    key = begin(prefills)
    prefills.step(key, 64)
    assert prefills.match(1, PROMPT, 128) == (Match.SERVE, key)
    prefills.begun(key, 6)
    assert prefills.step(key, 64) is None
    save = prefills.step(key, 192)
    assert save is not None
    assert (save.first, save.early, save.end) == (64, 64, 192)
    assert told.kinds() == ["prefill_started"]


def test_after_a_release_only_the_end_is_told(prefills: Prefills, told: Told) -> None:
    ask(prefills)
    key = begin(prefills)
    prefills.released(1)
    assert prefills.step(key, 200) is None
    prefills.heard(Event(What.SAVED, key, end=200))
    prefills.heard(Event(What.DONE, key, end=1))
    assert told.kinds() == ["prefill_started", "finished"]
    assert prefills.count == 0


def test_an_aborted_prompt_ends_once_and_keeps_its_blocks_until_their_release(
    prefills: Prefills, told: Told, blocks: Blocks
) -> None:
    ask(prefills)
    key = begin(prefills)
    prefills.aborted(1)
    prefills.heard(Event(What.ENDED, key))
    assert told.kinds() == ["prefill_started", "finished"]
    assert told[1].finished.reason == api.FINISH_REASON_ABORTED
    assert blocks.free == 2
    prefills.released(1)
    assert blocks.free == 6


def test_an_agent_that_is_gone_leaves_nothing_behind(prefills: Prefills, blocks: Blocks, told: Told) -> None:
    ask(prefills)
    key = begin(prefills)
    prefills.lost()
    assert blocks.free == 6
    prefills.attached(told.append)
    prefills.heard(Event(What.SAVED, key, end=64))
    assert told.kinds() == ["prefill_started"]


def test_forgetting_ends_all_of_them(prefills: Prefills, blocks: Blocks, told: Told) -> None:
    ask(prefills)
    begin(prefills)
    ask(prefills, 2)
    prefills.forget()
    assert told.kinds() == ["prefill_started", "finished", "finished"]
    assert blocks.free == 6
