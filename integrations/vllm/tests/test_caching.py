"""What the agent is told of the prefix cache, against one that looks a prompt up block by block."""

from __future__ import annotations

import random
import threading

import pytest
from doubles import Told

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.caching import MESSAGE, Cached
from lynx_vllm.staging import BLOCK_TOKENS

#: As long as three of the largest blocks.
PROMPT = tuple(range(1000, 1000 + 3 * 128))


class Agent:
    """What an agent knows by what it was told."""

    def __init__(self) -> None:
        self.blocks: dict[int, api.CachedBlock] = {}

    def __call__(self, message: api.FromEngine) -> None:
        cached = message.cached_blocks
        if cached.reset:
            self.blocks.clear()
        for block in cached.added:
            assert block.block not in self.blocks
            assert len(block.tokens) == BLOCK_TOKENS
            assert block.parent == 0 or block.parent in self.blocks
            self.blocks[block.block] = block
        for number in cached.removed:
            del self.blocks[number]

    def prefix(self, prompt: tuple[int, ...]) -> int:
        """How many tokens of a prompt it takes for cached."""
        paths: dict[int, tuple[int, ...]] = {0: ()}
        for number, block in self.blocks.items():
            if block.parent in paths:
                paths[number] = (*paths[block.parent], *block.tokens)
        known = set(paths.values())
        length = 0
        while length < len(prompt) and prompt[: length + BLOCK_TOKENS] in known:
            length += BLOCK_TOKENS
        return length


def chain(prompt: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    """The names of a prompt's blocks: here all of the tokens up to their ends."""
    return [prompt[:end] for end in range(size, len(prompt) + 1, size)]


@pytest.fixture
def cached() -> Cached:
    return Cached(threading.RLock())


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_a_prompt_is_told_in_blocks_of_64_tokens_whatever_vllms_have(cached: Cached, size: int) -> None:
    agent = Agent()
    cached.attached(agent)
    names = chain(PROMPT, size)
    cached.stored(names[:1], None, PROMPT[:size], size)
    cached.stored(names[1:], names[0], PROMPT[size:], size)
    assert agent.prefix(PROMPT) == len(PROMPT)
    assert agent.prefix((*PROMPT[:100], 7, *PROMPT[101:])) == 64
    cached.removed(names[-1:])
    assert agent.prefix(PROMPT) == len(PROMPT) - max(size, 64)


@pytest.mark.parametrize("size", [16, 64, 128])
def test_whatever_comes_and_goes_the_agent_finds_what_is_there(cached: Cached, size: int) -> None:
    seed = 5
    chance = random.Random(seed)
    agent = Agent()
    cached.attached(agent)
    prompts = [PROMPT, (*PROMPT[:200], *range(184)), (*PROMPT[:64], *range(320)), tuple(range(384))]
    there: set[tuple[int, ...]] = set()
    for step in range(400):
        prompt = chance.choice(prompts)
        names = chain(prompt, size)
        if chance.random() < 0.5:
            # As vLLM does: what is found is passed over, what follows is stored.
            known = next((place for place, name in enumerate(names) if name not in there), len(names))
            parent = names[known - 1] if known else None
            cached.stored(names[known:], parent, prompt[known * size :], size)
            there.update(names[known:])
        elif there:
            # From the ends of chains on.
            name = chance.choice(sorted(there))
            gone = [other for other in there if other[: len(name)] == name]
            cached.removed(gone)
            there.difference_update(gone)
        if chance.random() < 0.1:
            agent = Agent()
            cached.attached(agent)
        for one in prompts:
            count = next((place for place, name in enumerate(chain(one, size)) if name not in there), len(one) // size)
            length = count * size // BLOCK_TOKENS * BLOCK_TOKENS
            # Half of a block that another prompt has is no block of this one: what vLLM has is never less than told but for that.
            most = length + max(0, size - BLOCK_TOKENS)
            assert length <= agent.prefix(one) <= most, (seed, step)
    cached.cleared()
    assert agent.blocks == {}


def test_a_chain_whose_beginning_is_unknown_and_blocks_of_odd_sizes_are_not_told(cached: Cached, told: Told) -> None:
    cached.attached(told.append)
    cached.stored(["b"], "a", PROMPT[:64], 64)
    cached.stored(["c"], None, PROMPT[:48], 48)
    cached.removed(["b", "d"])
    assert [message.cached_blocks.reset for message in told] == [True]


def test_an_agent_that_comes_later_is_told_everything_in_pieces(cached: Cached) -> None:
    told = Told()
    count = MESSAGE + 7
    tokens = tuple(range(count * 64))
    cached.stored(list(range(1, count + 1)), None, tokens, 64)
    cached.attached(told.append)
    assert [(message.cached_blocks.reset, len(message.cached_blocks.added)) for message in told] == [
        (True, MESSAGE),
        (False, 7),
    ]
    cached.lost()
    cached.cleared()
    assert len(told) == 2
