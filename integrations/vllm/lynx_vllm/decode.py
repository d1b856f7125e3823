"""KV on its way to this engine: whose the staging blocks are, and what they hold.

The agent's words are taken as they come, under one lock, in whatever thread hears them; vLLM's scheduler looks at what they
amount to before each step. Words that no longer apply, because they crossed a request's end, mean nothing. No forward pass
reads the staging pool, so a grant is given as soon as it is asked for. A step that copies an anchor meanwhile may copy some
of it from before and some from after: those are the bits that drafts are made of, and every draft is verified. A GPU's
copy, which runs on when the call that launched it has returned, is no different in that.
"""

from __future__ import annotations

import enum
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .api import engine_pb2 as api
from .requests import Requests
from .staging import BLOCK_TOKENS, Blocks, blocks_of

#: Numbers of requests that the engine has begun: agents' own have this bit clear.
OWN = 1 << 63


class Phase(enum.Enum):
    """Whose the blocks are."""

    #: The agent's, until its first word.
    EXPECTED = enum.auto()
    #: The engine's; there is something to draft on.
    LENT = enum.auto()
    #: The agent's, under a grant.
    GRANTED = enum.auto()
    #: The engine's for good: everything is there.
    FULL = enum.auto()
    #: The engine's for good: nothing will come.
    FAILED = enum.auto()

    @property
    def is_the_agents(self) -> bool:
        """Whether the agent may write."""
        return self in (Phase.EXPECTED, Phase.GRANTED)

    @property
    def is_over(self) -> bool:
        """Whether the agent has said its last word."""
        return self in (Phase.FULL, Phase.FAILED)


@dataclass
class Incoming:
    """A request whose KV comes from elsewhere."""

    number: int
    prompt: Sequence[int]
    #: The tokens before are here already.
    from_token: int
    blocks: list[int]
    since: float
    phase: Phase = Phase.EXPECTED
    #: Whether an anchor has been there.
    is_anchored: bool = False
    #: How many tokens may be drafted.
    depth_limit: int = 0
    #: Whether all the bits are there, or will be.
    is_exact: bool = True
    #: Why nothing will come.
    reason: str = ""
    #: The verified tokens that were told.
    told: int = 0
    #: Whether the agent was told that the prompt is computed here.
    is_recomputing: bool = False
    has_ended: bool = False


@dataclass(frozen=True)
class View:
    """What the scheduler sees of one."""

    phase: Phase
    is_anchored: bool
    depth_limit: int
    is_exact: bool
    reason: str
    from_token: int
    staging: tuple[int, ...]


class Incomings(Requests):
    """All of them, by what vLLM calls them."""

    def __init__(
        self,
        blocks: Blocks,
        lock: threading.RLock,
        patience: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(blocks, lock, now)
        self._patience = patience
        self._numbers = itertools.count(OWN + 1)
        self._by_id: dict[str, Incoming] = {}
        self._by_number: dict[int, Incoming] = {}
        #: Since when requests wait for staging blocks.
        self._queued: dict[str, float] = {}

    # The agent's side.

    def lost(self) -> None:
        """It is gone, and writes nothing more; what it has not finished will not come."""
        with self._lock:
            self._say = None
            for one in list(self._by_number.values()):
                if not one.phase.is_over:
                    self._fail(one, "the agent is gone")
                one.number = 0
            self._by_number.clear()

    def anchor_ready(self, ready: api.AnchorReady) -> None:
        """There is something to draft on, or something better than before."""
        with self._lock:
            one = self._take_back(ready.request)
            if one is not None:
                one.phase = Phase.LENT
                one.is_anchored = True
                one.depth_limit = ready.depth_limit

    def want_grant(self, number: int) -> None:
        """The agent has something to write."""
        with self._lock:
            one = self._by_number.get(number)
            if one is None or one.phase is not Phase.LENT or one.has_ended:
                return
            one.phase = Phase.GRANTED
            self._tell(api.FromEngine(write_grant=api.WriteGrant(request=number)))

    def grant_returned(self, number: int) -> None:
        """It has written."""
        with self._lock:
            one = self._by_number.get(number)
            # The blocks that are awaited at first are the agent's without a grant.
            if one is not None and one.phase is Phase.GRANTED:
                one.phase = Phase.LENT
                self._drop_if_ended(one)

    def full_ready(self, number: int, *, is_exact: bool) -> None:
        """Everything is there."""
        with self._lock:
            one = self._take_back(number)
            if one is not None:
                one.phase = Phase.FULL
                one.is_exact = is_exact

    def kv_failed(self, number: int, reason: str) -> None:
        """Nothing will come."""
        with self._lock:
            one = self._take_back(number)
            if one is not None:
                self._fail(one, reason)

    def forget(self) -> None:
        """The agent wants all of them to end, and writes nothing more. Their clients are vLLM's: they are computed."""
        with self._lock:
            for one in list(self._by_number.values()):
                if not one.has_ended:
                    self._finish(one, api.FINISH_REASON_ABORTED)
                if not one.phase.is_over:
                    self._fail(one, "the agent has forgotten it")
                self._by_number.pop(one.number, None)
                one.number = 0

    # vLLM's side.

    def expect(
        self, request_id: str, client: int, prompt: Sequence[int], cached: int, sampling: api.Sampling
    ) -> View | None:
        """What has become of a request's KV; where nobody was asked for it yet, the agent is. `None` where nobody can be."""
        with self._lock:
            one = self._by_id.get(request_id)
            if one is None:
                if self._say is None:
                    self._queued.pop(request_id, None)
                    return None
                one = self._ask(request_id, client, prompt, cached, sampling)
                if one is None:
                    since = self._queued.setdefault(request_id, self._now())
                    is_possible = blocks_of(len(prompt)) <= self._blocks.count
                    if is_possible and self._now() - since < self._patience:
                        return View(Phase.EXPECTED, False, 0, True, "", 0, ())
                    del self._queued[request_id]
                    return None
                self._queued.pop(request_id, None)
            elif not one.phase.is_over and self._now() - one.since > self._patience:
                self.give_up(request_id, f"nothing has come for {self._patience:g} s")
                one = self._by_id[request_id]
            return self._view(one)

    def view(self, request_id: str) -> View | None:
        """What has become of a request's KV; `None` where none is awaited."""
        with self._lock:
            one = self._by_id.get(request_id)
            return None if one is None else self._view(one)

    def give_up(self, request_id: str, reason: str) -> None:
        """The engine computes the prompt, whatever comes. The blocks stay the agent's while they are."""
        with self._lock:
            one = self._by_id.pop(request_id, None)
            if one is None:
                return
            self._finish(one, api.FINISH_REASON_FAILED)
            self._drop_if_ended(one)
            # The request goes on, and the agent has heard the last of it: this one stands for it from now on.
            self._by_id[request_id] = Incoming(0, one.prompt, 0, [], one.since, Phase.FAILED, reason=reason)

    def used(self, request_id: str) -> None:
        """What came is in vLLM's own blocks, or is of no use any more."""
        with self._lock:
            one = self._by_id.get(request_id)
            if one is not None and one.phase.is_over:
                self._blocks.give_back(one.blocks)

    def finished(self, request_id: str, reason: api.FinishReason) -> None:
        """vLLM has ended the request."""
        with self._lock:
            self._queued.pop(request_id, None)
            one = self._by_id.pop(request_id, None)
            if one is None:
                return
            self._finish(one, reason)
            self._drop_if_ended(one)

    def tell(self, request_id: str, *events: api.Event) -> None:
        """Tells the agent what a step did for a request."""
        with self._lock:
            one = self._by_id.get(request_id)
            if one is not None and one.number and not one.has_ended:
                self._tell(api.FromEngine(progress=api.Progress(request=one.number, events=events)))

    def recomputing(self, request_id: str) -> None:
        """The prompt is computed here, since nothing came: tells the agent, once."""
        with self._lock:
            one = self._by_id.get(request_id)
            if one is not None and not one.is_recomputing:
                one.is_recomputing = True
                now = time.time_ns()
                event = api.Event(start_unix_ns=now, end_unix_ns=now, recomputing=api.Recomputing(reason=one.reason))
                self.tell(request_id, event)

    def tell_tokens(self, request_id: str, tokens: Sequence[int], start_unix_ns: int, end_unix_ns: int) -> None:
        """Tells the agent of verified tokens. Their text goes another way."""
        with self._lock:
            one = self._by_id.get(request_id)
            if one is None:
                return
            events = [
                api.Event(
                    start_unix_ns=start_unix_ns,
                    end_unix_ns=end_unix_ns,
                    token=api.Token(index=one.told + place, token=token),
                )
                for place, token in enumerate(tokens)
            ]
            one.told += len(tokens)
            self.tell(request_id, *events)

    @property
    def count(self) -> int:
        """How many are under way."""
        with self._lock:
            return sum(not one.phase.is_over for one in self._by_number.values())

    def _ask(
        self, request_id: str, client: int, prompt: Sequence[int], cached: int, sampling: api.Sampling
    ) -> Incoming | None:
        blocks = self._blocks.take(blocks_of(len(prompt)))
        if blocks is None:
            return None
        from_token = cached // BLOCK_TOKENS * BLOCK_TOKENS
        one = Incoming(next(self._numbers), list(prompt), from_token, blocks, self._now())
        self._by_id[request_id] = one
        self._by_number[one.number] = one
        expect = api.Expect(
            request=one.number,
            tokens=prompt,
            blocks=blocks,
            from_token=from_token,
            sampling=sampling,
            client=client,
        )
        self._tell(api.FromEngine(expect=expect))
        return one

    def _take_back(self, number: int) -> Incoming | None:
        """The agent writes no more for now. `None` where nothing is awaited any more."""
        one = self._by_number.get(number)
        if one is None or one.phase.is_over:
            return None
        if one.has_ended:
            self._drop(one)
            return None
        return one

    def _drop_if_ended(self, one: Incoming) -> None:
        if one.has_ended and not one.phase.is_the_agents:
            self._drop(one)

    def _drop(self, one: Incoming) -> None:
        self._blocks.give_back(one.blocks)
        self._by_number.pop(one.number, None)

    def _fail(self, one: Incoming, reason: str) -> None:
        one.phase = Phase.FAILED
        one.reason = reason
        self._blocks.give_back(one.blocks)

    def _finish(self, one: Incoming, reason: api.FinishReason) -> None:
        if one.number and not one.has_ended:
            self._tell_finished(one.number, reason)
        one.has_ended = True

    def _view(self, one: Incoming) -> View:
        return View(
            one.phase, one.is_anchored, one.depth_limit, one.is_exact, one.reason, one.from_token, tuple(one.blocks)
        )
