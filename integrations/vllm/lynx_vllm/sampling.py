"""What a request's sampling parameters mean for its transfer. They are vLLM's `SamplingParams`, of which only fields are read."""

from __future__ import annotations

from typing import Any

from .api import engine_pb2 as api


def may_draft(params: Any) -> bool:
    """Whether a request's answer is the same whether tokens of it were drafted or not.

    What draws on something that each step changes is none of these: a generator of the request's own, which a draft would
    have advanced; counts of what was said, and automata over it, which vLLM keeps outside of the tokens that are taken
    back. Such a request waits until all the bits are there.
    """
    draws_on_a_seed = params.temperature > 0 and params.seed is not None
    counts = (
        params.presence_penalty != 0
        or params.frequency_penalty != 0
        or params.repetition_penalty != 1
        or params.min_tokens > 0
        or params.repetition_detection is not None
    )
    follows = bool(params.structured_outputs or params.bad_words or params.allowed_token_ids or params.logit_bias)
    wants_logprobs = params.logprobs is not None or params.prompt_logprobs is not None
    return not (draws_on_a_seed or counts or follows or wants_logprobs)


def for_agent(params: Any) -> api.Sampling:
    """The same in the engine API's words, for the prefill node's first token, of which this engine makes no use."""
    return api.Sampling(
        temperature=params.temperature,
        top_k=max(0, params.top_k),
        top_p=params.top_p,
        seed=params.seed or 0,
    )
