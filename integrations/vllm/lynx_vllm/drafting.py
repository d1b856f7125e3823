"""Draft on the first bits, verify with all of them: what a scheduler does with a request whose KV is on its way.

Decisions only. What a request is in vLLM, and how it is taken back, is behind `Sequence`; a test's is a few lines. A draft
is told to nobody. It is held back here, and once the whole KV is there the request goes back to the end of its prompt with
the drafted tokens as speculative ones: one forward pass of vLLM's own verification keeps the right ones and gives one more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .decode import Phase, View


class Sequence(Protocol):
    """A request that vLLM runs."""

    def append(self, token: int) -> None:
        """Adds a token to its output, for the next step to go on from."""

    def rewind(self, computed: int, drafts: list[int]) -> None:
        """Forgets its output. So many tokens of its prompt count as computed; the next step computes the rest, and these
        tokens behind it as speculative ones."""

    def ends_with(self, token: int, length: int) -> bool:
        """Whether the output would end with this token as the last of so many."""

    def most_drafts(self) -> int:
        """How many tokens are worth drafting before its output is as long as it may become."""


class Stage(enum.Enum):
    """Where a draft is."""

    #: The request is about to be admitted, with an anchor.
    ADMITTED = enum.auto()
    #: It decodes on an anchor.
    DRAFTING = enum.auto()
    #: The next step verifies.
    VERIFYING = enum.auto()


@dataclass
class Draft:
    """A request that drafts."""

    sequence: Sequence
    #: How many tokens of the prompt vLLM had by itself.
    local: int
    #: How many tokens of the prompt have their KV without being computed here.
    loaded: int
    limit: int
    stage: Stage = Stage.ADMITTED
    tokens: list[int] = field(default_factory=list)
    #: Whether the last of them is held back from the sequence, so that no step goes on from it.
    is_paused: bool = False


class Next(enum.Enum):
    """What the next step does for a request that drafts."""

    #: What it would do anyway.
    NOTHING = enum.auto()
    #: All the bits are copied before it, and it verifies.
    VERIFY = enum.auto()
    #: It computes the prompt.
    COMPUTE = enum.auto()


@dataclass(frozen=True)
class Verified:
    """What a verification gave."""

    drafted: int
    kept: int


class Drafts:
    """All requests that draft, by what vLLM calls them."""

    def __init__(self, most: int) -> None:
        #: How many tokens vLLM can verify at once.
        self._most = most
        self._by_id: dict[str, Draft] = {}

    def depth(self, view: View, sequence: Sequence) -> int:
        """How many tokens to draft; none for a request that is better off waiting."""
        return max(0, min(view.depth_limit, self._most, sequence.most_drafts()))

    def admit(self, request_id: str, sequence: Sequence, view: View, local: int, loaded: int) -> None:
        """A request is about to be admitted with an anchor."""
        self._by_id[request_id] = Draft(sequence, local, loaded, self.depth(view, sequence))

    def admitted(self, request_id: str, *, is_full: bool) -> None:
        """vLLM has taken it. Where all the bits have come meanwhile, there is nothing to draft for."""
        draft = self._by_id.get(request_id)
        if draft is None or draft.stage is not Stage.ADMITTED:
            return
        if is_full:
            del self._by_id[request_id]
        else:
            draft.stage = Stage.DRAFTING

    def is_tainted(self, request_id: str) -> bool:
        """Whether the request's KV may be less than exact, and must stay out of the prefix cache."""
        draft = self._by_id.get(request_id)
        return draft is not None and draft.stage is not Stage.VERIFYING

    def span(self, request_id: str) -> tuple[int, int] | None:
        """Which tokens of a draft's prompt came from elsewhere."""
        draft = self._by_id.get(request_id)
        return None if draft is None else (draft.local, draft.loaded)

    def ids(self) -> list[str]:
        """Which requests draft."""
        return list(self._by_id)

    def before_step(self, request_id: str, view: View | None) -> Next:
        """What becomes of a draft, given what has become of its KV."""
        draft = self._by_id.get(request_id)
        if draft is None or draft.stage is not Stage.DRAFTING:
            return Next.NOTHING
        if view is None or view.phase is Phase.FAILED:
            draft.sequence.rewind(draft.local, [])
            del self._by_id[request_id]
            return Next.COMPUTE
        if view.phase is Phase.FULL:
            draft.sequence.rewind(draft.loaded, list(draft.tokens))
            draft.stage = Stage.VERIFYING
            return Next.VERIFY
        draft.limit = self.depth(view, draft.sequence)
        if draft.is_paused and not self._pauses(draft):
            draft.is_paused = False
            draft.sequence.append(draft.tokens[-1])
        return Next.NOTHING

    def took(
        self, request_id: str, tokens: list[int], update: Callable[[], tuple[list[int], bool]]
    ) -> tuple[list[int], bool, Verified | None]:
        """A step gave these tokens. Gives what is to be told of them, whether the request has stopped, and what came of its
        draft. `update` does what vLLM does with tokens that are told."""
        draft = self._by_id.get(request_id)
        if draft is None:
            return *update(), None
        if draft.stage is Stage.VERIFYING:
            del self._by_id[request_id]
            kept = min(len(tokens) - 1, len(draft.tokens))
            return *update(), Verified(len(draft.tokens), kept)
        for token in tokens:
            draft.tokens.append(token)
            draft.is_paused = self._pauses(draft)
            if draft.is_paused:
                # Tokens behind this one, if there are any, aren't worth keeping.
                break
            draft.sequence.append(token)
        return [], False, None

    def gone(self, request_id: str) -> Draft | None:
        """The request runs no more: it has ended, or was preempted."""
        return self._by_id.pop(request_id, None)

    @staticmethod
    def _pauses(draft: Draft) -> bool:
        return len(draft.tokens) >= draft.limit or draft.sequence.ends_with(draft.tokens[-1], len(draft.tokens))
