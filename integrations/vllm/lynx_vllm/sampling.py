"""What a request's sampling parameters mean for its transfer. They are vLLM's `SamplingParams`, of which only fields are read."""

from __future__ import annotations

from typing import Any

from .api import engine_pb2 as api


def may_draft(params: Any) -> bool:
    """Whether a request's answer is the same whether tokens of it were drafted or not.

    What vLLM makes anew of a request's tokens at each step is no hindrance: penalties, forbidden words, allowed tokens, log
    probabilities. What it keeps beside them is, since a draft moves it on and nobody takes it back: a generator of the request's own, and
    an automaton over the answer. Such a request waits until all the bits are there. `min_tokens` is counted beside them too, but only
    once the answer has so many: drafts are shorter (`most_drafts`).
    """
    draws_on_a_seed = params.temperature > 0 and params.seed is not None
    follows = bool(params.structured_outputs or params.logit_bias)
    return not (draws_on_a_seed or follows or params.prompt_logprobs is not None)


def most_drafts(params: Any, room: int) -> int:
    """How many tokens are worth drafting, where the answer has room for so many. The verification gives one more than it verifies."""
    most = min(params.max_tokens or room, room) - 1
    return min(most, params.min_tokens - 1) if params.min_tokens else most


def for_agent(params: Any) -> api.Sampling:
    """The same in the engine API's words, for the prefill node's first token, of which this engine makes no use."""
    return api.Sampling(
        temperature=params.temperature,
        top_k=max(0, params.top_k),
        top_p=params.top_p,
        seed=params.seed or 0,
    )
