"""Prompts that are computed here for a decode node: what the agent asked for, what vLLM does, and who may touch which blocks.

The agent asks on its stream and by vLLM's HTTP interface, with one number; the two meet here. Nothing in this file waits,
and all of it happens under one lock: the scheduler's thread, the link's and the events' call it.
"""

from __future__ import annotations

import enum
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .api import engine_pb2 as api
from .channel import Event, What
from .requests import Requests
from .staging import BLOCK_TOKENS, Blocks, blocks_of

#: How long one half of a request waits for the other, in seconds.
MEETING = 60.0


class Match(enum.Enum):
    """What vLLM is to do with a request."""

    #: Leave it in the queue for now.
    WAIT = enum.auto()
    #: Compute it; nobody asks for its KV.
    PLAIN = enum.auto()
    #: Compute it, and save its KV.
    SERVE = enum.auto()


@dataclass
class Outgoing:
    """A prompt that the agent has asked for."""

    number: int
    tokens: Sequence[int]
    from_token: int
    #: When the agent asked.
    since: float
    #: What the worker calls it: unlike the agent's number, one that no other request of this process ever has.
    key: int
    blocks: list[int] = field(default_factory=list)
    #: How many tokens vLLM's prefix cache had.
    cached: int = 0
    #: How many tokens are saved, or will be by the step that is under way.
    saved: int = 0
    #: Whether the agent was told that it has begun.
    is_told: bool = False
    started_unix_ns: int = 0
    has_ended: bool = False
    is_released: bool = False


@dataclass(frozen=True)
class Save:
    """What a step is to copy for a request: these tokens, into these staging blocks, which are the whole prompt's."""

    key: int
    staging: tuple[int, ...]
    first: int
    #: Tokens before this one were there before the step: they are copied before it, in all layers at once.
    early: int
    end: int


class Prefills(Requests):
    """All of them."""

    def __init__(self, blocks: Blocks, lock: threading.RLock, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(blocks, lock, now)
        self._keys = itertools.count(1)
        self._by_number: dict[int, Outgoing] = {}
        self._by_key: dict[int, Outgoing] = {}
        #: Since when vLLM's requests wait for the agent's word.
        self._early: dict[int, float] = {}

    # The agent's side.

    def lost(self) -> None:
        """It is gone, and reads nothing more."""
        with self._lock:
            self._say = None
            for one in list(self._by_number.values()):
                self._forget(one)

    def asked(self, prefill: api.Prefill) -> None:
        """The agent wants a prompt's KV."""
        with self._lock:
            number, tokens = prefill.request, len(prefill.tokens)
            wanted = blocks_of(tokens)
            if number in self._by_number:
                self._refuse(number, f"request {number} is running already", retryable=False)
                return
            if prefill.from_token % BLOCK_TOKENS or prefill.from_token >= max(tokens, 1):
                why = f"from_token is {prefill.from_token}: give a multiple of {BLOCK_TOKENS} below {tokens}"
                self._refuse(number, why, retryable=False)
                return
            if wanted > self._blocks.count:
                why = f"the prompt takes {wanted} blocks, and the staging pool has {self._blocks.count}: make it larger"
                self._refuse(number, why, retryable=False)
                return
            one = Outgoing(number, list(prefill.tokens), prefill.from_token, self._now(), next(self._keys))
            self._by_number[number] = one
            self._by_key[one.key] = one

    def released(self, number: int) -> None:
        """The agent reads the blocks no more."""
        with self._lock:
            one = self._by_number.get(number)
            if one is not None:
                one.is_released = True
                self._blocks.give_back(one.blocks)
                if one.has_ended:
                    self._forget(one)

    def aborted(self, number: int) -> None:
        """The agent wants it no more. Where vLLM has begun with it, its HTTP request ends it."""
        with self._lock:
            one = self._by_number.get(number)
            if one is not None and not one.has_ended:
                self._end(one, api.FINISH_REASON_ABORTED)

    def forget(self) -> None:
        """The agent wants none of them any more, and reads nothing."""
        with self._lock:
            for one in list(self._by_number.values()):
                if not one.has_ended:
                    self._end(one, api.FINISH_REASON_ABORTED)
                self._forget(one)

    # vLLM's side.

    def match(self, number: int, prompt: Sequence[int], cached: int) -> tuple[Match, int]:
        """What to do with a request of this number, of which the prefix cache has so many tokens; and its key."""
        with self._lock:
            one = self._by_number.get(number)
            if one is None:
                since = self._early.setdefault(number, self._now())
                if self._say is not None and self._now() - since < MEETING:
                    return Match.WAIT, 0
                del self._early[number]
                return Match.PLAIN, 0
            self._early.pop(number, None)
            if one.has_ended or one.is_released:
                return Match.PLAIN, 0
            if list(one.tokens) != list(prompt):
                self._refuse(number, "the prompt that came by HTTP is another one", retryable=False)
                self._forget(one)
                return Match.PLAIN, 0
            if not one.blocks:
                blocks = self._blocks.take(blocks_of(len(one.tokens)))
                if blocks is None:
                    return Match.WAIT, 0
                one.blocks = blocks
            one.cached = cached
            return Match.SERVE, one.key

    def begun(self, key: int, unix_ns: int) -> None:
        """vLLM has blocks for it."""
        with self._lock:
            one = self._by_key.get(key)
            if one is None or one.started_unix_ns:
                return
            one.started_unix_ns = unix_ns
            if one.cached <= one.from_token:
                # Nothing to copy before the first layer.
                one.saved = one.cached
                self._tell_started(one)

    def step(self, key: int, end: int) -> Save | None:
        """What is to be saved in a step that computes up to this token. Tokens that were saved before are left alone: the
        agent may be reading them."""
        with self._lock:
            one = self._by_key.get(key)
            if one is None or one.is_released or one.has_ended or not one.blocks:
                return None
            end = min(end, len(one.tokens))
            first = max(one.saved, one.from_token)
            if first >= end:
                return None
            early = one.cached if one.saved == 0 and one.cached > one.from_token else first
            one.saved = end
            return Save(one.key, tuple(one.blocks), first, early, end)

    def prompt(self, key: int) -> Sequence[int]:
        """A prompt's tokens; none for an unknown one."""
        with self._lock:
            one = self._by_key.get(key)
            return () if one is None else one.tokens

    def heard(self, event: Event) -> None:
        """What the worker, or the scheduler's end of the same socket, says."""
        with self._lock:
            one = self._by_key.get(event.request)
            if one is None or one.has_ended:
                return
            if one.is_released and event.what is not What.ENDED:
                # Of what the agent has released it hears nothing more but the end.
                if event.what is What.DONE:
                    self._end(one, api.FINISH_REASON_ABORTED)
                return
            if event.what is What.CACHED:
                self._tell_started(one)
            elif event.what is What.SAVED:
                self._tell_saved(one, event)
            elif event.what is What.DONE:
                self._tell(api.FromEngine(prefill_done=api.PrefillDone(request=one.number, first_token=event.end)))
                self._end(one, api.FINISH_REASON_LENGTH)
            elif event.what is What.ENDED:
                self._end(one, api.FINISH_REASON_ABORTED)

    def sweep(self) -> None:
        """Ends what waits for a half that never came."""
        with self._lock:
            over = self._now() - MEETING
            for one in list(self._by_number.values()):
                if not one.started_unix_ns and not one.has_ended and one.since < over:
                    self._refuse(one.number, "its HTTP request has not come", retryable=True)
                    self._forget(one)
            for number in [number for number, since in self._early.items() if since < over]:
                del self._early[number]

    @property
    def count(self) -> int:
        """How many are under way."""
        with self._lock:
            return sum(not one.has_ended for one in self._by_number.values())

    def _tell_started(self, one: Outgoing) -> None:
        one.is_told = True
        started = api.PrefillStarted(
            request=one.number,
            blocks=one.blocks,
            cached_tokens=one.cached,
            start_unix_ns=one.started_unix_ns,
        )
        self._tell(api.FromEngine(prefill_started=started))

    def _tell_saved(self, one: Outgoing, event: Event) -> None:
        published = api.Published(
            request=one.number,
            layer=event.layer,
            first_token=event.first,
            end_token=event.end,
            start_unix_ns=event.start_unix_ns,
            end_unix_ns=event.end_unix_ns,
        )
        self._tell(api.FromEngine(published=published))

    def _end(self, one: Outgoing, reason: api.FinishReason) -> None:
        one.has_ended = True
        self._tell_finished(one.number, reason)
        if one.is_released or not one.is_told:
            # Nobody reads what was never told of; the agent has nothing to release then.
            self._forget(one)

    def _refuse(self, number: int, why: str, *, retryable: bool) -> None:
        self._tell(api.FromEngine(refused=api.Refused(request=number, reason=why, retryable=retryable)))

    def _forget(self, one: Outgoing) -> None:
        self._blocks.give_back(one.blocks)
        self._by_number.pop(one.number, None)
        self._by_key.pop(one.key, None)
