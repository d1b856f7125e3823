"""Importing this is the check that the right vLLM is installed. It comes before any import of vLLM's own: what another
release lacks would say so less clearly."""

from .version import require_vllm

require_vllm()
