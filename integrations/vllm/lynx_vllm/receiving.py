"""A decode engine's answers to vLLM's scheduler, without vLLM: what to wait for, what to load, when to draft and to verify."""

from __future__ import annotations

import time
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from .api import engine_pb2 as api
from .decode import Incomings, Phase, View
from .drafting import Drafts, Next, Sequence, Verified
from .staging import RECOMPUTED


@dataclass(frozen=True)
class Ask:
    """A request that vLLM would like to begin."""

    request_id: str
    #: The number that the agent gave its client's request.
    client: int
    prompt: Tokens[int]
    sampling: api.Sampling
    may_draft: bool
    sequence: Sequence


@dataclass(frozen=True)
class Loading:
    """KV that the next step of a request begins with: these tokens, from these staging blocks."""

    staging: tuple[int, ...]
    first: int
    end: int
    is_exact: bool


#: A client's request, and the prompt.
Key = tuple[int, tuple[int, ...]]


@dataclass
class Family:
    """Choices of one client's request for one prompt: KV is brought for the first of them, and the others find it in vLLM's
    prefix cache, of which a client's request has a part of its own."""

    #: For which KV is brought; nobody where that one ended before it came.
    first: str | None
    members: set[str] = field(default_factory=set)
    #: Whether nothing more is to be waited for.
    is_settled: bool = False


class Receiving:
    """All requests whose KV comes from elsewhere."""

    def __init__(self, incomings: Incomings) -> None:
        self._incomings = incomings
        #: `None` while no scheduler that can draft has come forward.
        self.drafts: Drafts | None = None
        #: What the next step in which a request is scheduled begins with.
        self._loading: dict[str, Loading] = {}
        #: What such a step has begun with, all bits of it, since which none has begun.
        self._loaded: list[str] = []
        #: Requests whose KV is less than the prefill node's for good.
        self._inexact: set[str] = set()
        self._families: dict[Key, Family] = {}
        self._family_of: dict[str, Key] = {}

    def matched(self, ask: Ask, local: int) -> int | None:
        """How many tokens behind those that vLLM has by itself need not be computed. `None`: ask again later."""
        loaded = len(ask.prompt) - RECOMPUTED
        if loaded <= local:
            return 0
        family = self._family(ask)
        if family.first != ask.request_id:
            if not family.is_settled:
                return None
            if local:
                return 0
        matched = self._matched(ask, local, loaded)
        if matched == 0:
            family.is_settled = True
        return matched

    def _matched(self, ask: Ask, local: int, loaded: int) -> int | None:
        view = self._incomings.expect(ask.request_id, ask.client, ask.prompt, local, ask.sampling)
        if view is None:
            return 0
        if view.phase is Phase.FAILED:
            self._incomings.recomputing(ask.request_id)
            return 0
        if view.phase is Phase.FULL and not view.staging:
            # It was here, and vLLM has lost it again.
            return 0
        if view.staging and local < view.from_token:
            self._incomings.give_up(ask.request_id, "vLLM's prefix cache has lost what it had")
            return 0
        if view.phase is Phase.FULL:
            self._forget_draft(ask.request_id)
            if not view.is_exact:
                self._inexact.add(ask.request_id)
            self._loading[ask.request_id] = Loading(view.staging, local, loaded, view.is_exact)
            return loaded - local
        drafts = self.drafts
        if drafts is None or not view.is_anchored or not ask.may_draft or not drafts.depth(view, ask.sequence):
            return None
        drafts.admit(ask.request_id, ask.sequence, view, local, loaded)
        self._loading[ask.request_id] = Loading(view.staging, local, loaded, is_exact=False)
        return loaded - local

    def admitted(self, request_id: str, external: int) -> None:
        """vLLM has blocks for it."""
        if not external:
            self._forget_draft(request_id)
            return
        view = self._incomings.view(request_id)
        is_full = view is not None and view.phase is Phase.FULL
        if is_full and view is not None:
            self._full(request_id, view)
        if self.drafts is not None:
            self.drafts.admitted(request_id, is_full=is_full)

    def before_step(self) -> None:
        """Looks at what has come of the KV of requests that draft."""
        drafts = self.drafts
        if drafts is None:
            return
        for request_id in drafts.ids():
            view = self._incomings.view(request_id)
            following = drafts.before_step(request_id, view)
            if following is Next.VERIFY and view is not None:
                self._full(request_id, view)
            elif following is Next.COMPUTE:
                self._loading.pop(request_id, None)
                self._incomings.recomputing(request_id)

    def _full(self, request_id: str, view: View) -> None:
        """Everything is there: what was to be loaded is loaded from it, and what was loaded is loaded anew."""
        if not view.is_exact:
            self._inexact.add(request_id)
        drafts = self.drafts
        span = drafts.span(request_id) if drafts is not None else None
        before = self._loading.get(request_id)
        if span is None and before is not None:
            span = (before.first, before.end)
        if span is not None:
            self._loading[request_id] = Loading(view.staging, *span, view.is_exact)

    def loads(self, scheduled: Tokens[str]) -> dict[str, Loading]:
        """What a step with these requests begins with. The step before has ended: what it loaded is vLLM's."""
        for request_id in self._loaded:
            self._incomings.used(request_id)
            # A request that has ended by now is in none.
            key = self._family_of.get(request_id)
            if key is not None:
                self._families[key].is_settled = True
        self._loaded.clear()
        taken = {request_id: self._loading.pop(request_id) for request_id in scheduled if request_id in self._loading}
        drafts = self.drafts
        for request_id in taken:
            if drafts is None or not drafts.is_tainted(request_id):
                self._loaded.append(request_id)
        return taken

    def is_tainted(self, request_id: str) -> bool:
        """Whether the request's KV must stay out of the prefix cache."""
        if request_id in self._inexact:
            return True
        return self.drafts is not None and self.drafts.is_tainted(request_id)

    def verified(self, request_id: str, verified: Verified, start_unix_ns: int) -> None:
        """A verification has ended."""
        checked = api.Checked(drafted=verified.drafted, kept=verified.kept)
        event = api.Event(start_unix_ns=start_unix_ns, end_unix_ns=time.time_ns(), verified=checked)
        self._incomings.tell(request_id, event)

    def preempted(self, request_id: str) -> None:
        """vLLM has taken a request's blocks away; it begins anew later. Nobody was told what it had drafted."""
        self._loading.pop(request_id, None)
        # What is staged is wanted once more.
        if request_id in self._loaded:
            self._loaded.remove(request_id)
        self._forget_draft(request_id)

    def finished(self, request_id: str, reason: api.FinishReason) -> None:
        """A request has ended."""
        self._loading.pop(request_id, None)
        self._inexact.discard(request_id)
        self._leave(request_id)
        if self.drafts is not None:
            self.drafts.gone(request_id)
        self._incomings.finished(request_id, reason)

    def _family(self, ask: Ask) -> Family:
        key = self._family_of.get(ask.request_id)
        if key is None:
            key = self._family_of[ask.request_id] = (ask.client, tuple(ask.prompt))
            self._families.setdefault(key, Family(ask.request_id)).members.add(ask.request_id)
        family = self._families[key]
        family.first = family.first or ask.request_id
        return family

    def _leave(self, request_id: str) -> None:
        key = self._family_of.pop(request_id, None)
        if key is None:
            return
        family = self._families[key]
        family.members.discard(request_id)
        if not family.members:
            del self._families[key]
        elif family.first == request_id and not family.is_settled:
            family.first = None

    def _forget_draft(self, request_id: str) -> None:
        draft = None if self.drafts is None else self.drafts.gone(request_id)
        if draft is not None and draft.tokens:
            draft.sequence.rewind(0, [])
