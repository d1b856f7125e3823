"""Lynx for vLLM: the KV cache of a prompt, from a prefill node's vLLM to a decode node's, the most significant bits first.

A connector of vLLM's KV transfer interface that speaks Lynx's engine API to the agent beside it, a scheduler that drafts on
the first bits and verifies once all of them are there, and a proposer that vLLM wants for the latter. `docs/vllm.md` says
how they are put to use.

What they are made of is kept apart from vLLM, so that it can be tested without: `decode`, `prefill`, `drafting`, `staging`,
`layout`, `link` and `words` import nothing of it. Only `connector`, `scheduler`, `worker` and `proposer` do.
"""

__version__ = "0.1.0"
