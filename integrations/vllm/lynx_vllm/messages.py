"""What a scheduler's side tells a worker's with every step."""

from __future__ import annotations

from dataclasses import dataclass, field

from .prefill import Save


@dataclass(frozen=True)
class Load:
    """KV to be copied into vLLM's blocks before the step: these tokens, from these staging blocks, the whole prompt's."""

    staging: tuple[int, ...]
    blocks: tuple[int, ...]
    first: int
    end: int
    #: Whether these are all the bits that the prefill node has.
    is_exact: bool
    #: What to call the prompt in the log; nothing is logged without.
    name: str = ""


@dataclass(frozen=True)
class Store:
    """KV to be copied out of vLLM's blocks as it is computed."""

    save: Save
    blocks: tuple[int, ...]
    #: Whether these are the last of the prompt's.
    is_last: bool
    name: str = ""


@dataclass
class Step:
    """All of it."""

    #: The staging pool's file, and how many blocks it has.
    pool: str = ""
    pool_blocks: int = 0
    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
