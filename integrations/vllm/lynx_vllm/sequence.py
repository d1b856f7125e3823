"""A request of vLLM's, as drafting wants it: the fields of vLLM's that this touches are named here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .sampling import most_drafts

if TYPE_CHECKING:
    from vllm.v1.request import Request


class VllmSequence:
    """A request that vLLM's scheduler runs."""

    def __init__(self, request: Request, most_tokens: int, hash_block: int) -> None:
        self._request = request
        self._most_tokens = most_tokens
        self._hash_block = hash_block

    def append(self, token: int) -> None:
        """See `drafting.Sequence`."""
        self._request.append_output_token_ids(token)

    def rewind(self, computed: int, drafts: list[int]) -> None:
        """See `drafting.Sequence`."""
        request = self._request
        prompt = request.num_prompt_tokens
        request._output_token_ids.clear()
        del request._all_token_ids[prompt:]
        # Hashes of blocks that end within the prompt are of its tokens alone.
        del request.block_hashes[prompt // self._hash_block :]
        request.num_computed_tokens = computed
        request.spec_token_ids = drafts

    def ends_with(self, token: int, length: int) -> bool:
        """See `drafting.Sequence`."""
        params = self._request.sampling_params
        assert params is not None
        return token == params.eos_token_id or token in (params.stop_token_ids or ())

    def most_drafts(self) -> int:
        """See `drafting.Sequence`."""
        request = self._request
        return most_drafts(request.sampling_params, self._most_tokens - request.num_prompt_tokens)
