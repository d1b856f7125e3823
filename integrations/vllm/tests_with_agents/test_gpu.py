"""KV on a GPU, from an engine's blocks to another's, through two real agents whose CUDA driver is the double.

What such a GPU says of time and of order is not tested by this, and what is said between engine and agent is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import Processor
from nodes import BLOCK, BLOCKS, GEOMETRY, PATIENCE, Node, driver_folder, held_port, post, until

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.channel import Event, What
from lynx_vllm.decode import Phase
from lynx_vllm.gpu_copying import rows
from lynx_vllm.messages import Load, Step, Store
from lynx_vllm.options import Role
from lynx_vllm.prefill import Match
from lynx_vllm.staging import RECOMPUTED

PROMPT = list(range(7, 307))
LIBRARY = "LYNX_FAKE_CUDA"


class Pair:
    """A prefill node, a decode node, and where each has the prompt in its own blocks."""

    def __init__(self, folder: Path) -> None:
        library = os.environ[LIBRARY]
        drivers = folder / "driver"
        drivers.mkdir()
        driver_folder(drivers, library)
        self.held = [held_port() for _ in range(10)]
        ports = [held.getsockname()[1] for held in self.held]
        self.prefill = Node(Role.PREFILL, folder / "p", drivers, library, ports[:5], [])
        self.decode = Node(Role.DECODE, folder / "d", drivers, library, ports[5:], [self.prefill.peer])
        self.nodes = [self.prefill, self.decode]
        random = np.random.default_rng(5)
        count = -(-len(PROMPT) // BLOCK)
        self.tables = [tuple(map(int, random.permutation(BLOCKS)[:count])) for _ in self.nodes]
        for cache in self.prefill.caches:
            values = random.standard_normal(cache.shape).astype(np.float32)
            cache[:] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
        self.prefill.answer, self.decode.answer = self.compute, self.load
        #: Phases in which the decode engine has seen its request.
        self.phases: list[Phase] = []

    def compute(self, body: dict[str, Any]) -> None:
        """The prefill engine, to which the prompt is posted: it has its KV already, and saves it in two steps."""
        number = int(body["kv_transfer_params"]["lynx"]["prefill"])
        prefills = self.prefill.engine.prefills
        key = 0

        def is_met() -> bool:
            nonlocal key
            match, key = prefills.match(number, body["prompt"], 0)
            return match is Match.SERVE

        # An agent hands requests on before the engine has read that it is attached.
        until("the stream has told of the prompt", is_met)
        prefills.begun(key, 1)
        copier = self.prefill.copier(Processor(is_quick=True))
        for end in (100, len(PROMPT)):
            save = prefills.step(key, end)
            assert save is not None
            copier.begin(Step(stores=[Store(save, self.tables[0], end == len(PROMPT))]))
            for layer in range(GEOMETRY.layers):
                copier.layer_done(layer)
            copier.finish()
        self.prefill.engine.tell_events(Event(What.DONE, key, end=4))

    def load(self, body: dict[str, Any]) -> None:
        """The decode engine, to which a client's request is handed on: it waits for KV and loads it."""
        client = int(body["kv_transfer_params"]["lynx"]["client"])
        incomings, word = self.decode.engine.incomings, self.decode.engine.word

        def is_asked() -> bool:
            return incomings.expect("a", client, body["prompt"], 0, api.Sampling()) is not None

        until("the engine knows of its agent", is_asked)
        while True:
            word.clear()
            view = incomings.expect("a", client, body["prompt"], 0, api.Sampling())
            assert view is not None
            self.phases.append(view.phase)
            if view.phase.is_over:
                break
            word.wait(PATIENCE)
        assert view.phase is Phase.FULL, view.reason
        end = len(PROMPT) - RECOMPUTED
        load = Load(view.staging, self.tables[1], 0, end, view.is_exact)
        self.decode.copier(Processor()).begin(Step(loads=[load]))
        incomings.used("a")
        incomings.finished("a", api.FINISH_REASON_LENGTH)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    for node in pair.nodes:
        node.close()
    for held in pair.held:
        held.close()


def ask_and_compare(pair: Pair) -> None:
    """A client's request, after which both engines have the same KV."""
    for node in pair.nodes:
        until("a node is ready", node.is_ready)
    until("they are linked", lambda: pair.decode.metric("lynx_link_up") == 1)
    status, text = post(pair.decode.port, {"model": "m", "prompt": PROMPT, "max_tokens": 1})
    assert (status, "yes" in text) == (200, True), text
    tokens = range(len(PROMPT) - RECOMPUTED)
    for layer in range(GEOMETRY.layers):
        found = []
        for node, table in zip(pair.nodes, pair.tables, strict=True):
            row, within = rows(tokens, table, BLOCK, BLOCK)
            found.append(node.caches[layer][row, :, within])
        assert found[0].any()
        assert np.array_equal(*found)


def test_kv_on_a_gpu_is_coded_there_and_comes_to_another_bit_for_bit(pair: Pair) -> None:
    ask_and_compare(pair)
    assert [node.metric("lynx_engine_kv_on_gpu") for node in pair.nodes] == [1, 1]


def test_an_agent_that_is_there_anew_is_given_the_memory_anew(pair: Pair) -> None:
    until("a node is ready", pair.decode.is_ready)
    for cache in pair.decode.caches:
        cache[:] = 0
    pair.decode.agent.kill()
    pair.decode.agent.wait()
    pair.decode.start_agent()
    ask_and_compare(pair)
