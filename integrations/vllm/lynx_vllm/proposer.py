"""vLLM verifies speculative tokens only where something proposes them. This proposes none: drafts come from `scheduler`."""

from __future__ import annotations

from typing import Any


class LynxProposer:
    """For `--speculative-config`: `{"method": "custom_class", "model": "lynx_vllm.proposer.LynxProposer"}`."""

    def __init__(self, vllm_config: Any) -> None:
        """vLLM makes one for each worker."""

    def load_model(self, *arguments: Any, **named: Any) -> None:
        """There is none."""

    def propose(self, sampled_token_ids: list[list[int]], *arguments: Any, **named: Any) -> list[list[int]]:
        """Nothing, for each request of a step."""
        return [[] for _ in sampled_token_ids]
