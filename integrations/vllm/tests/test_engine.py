"""A whole engine but vLLM: the pool in memory, the worker's socket, and an agent on another."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent import PATIENCE, Agent

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.channel import Event, Sender, What, path_of
from lynx_vllm.copying import Copier
from lynx_vllm.decode import Phase
from lynx_vllm.engine import Engine, Model
from lynx_vllm.layout import Layout, measure
from lynx_vllm.messages import Load, Step, Store
from lynx_vllm.options import Options, Role
from lynx_vllm.pools import HostPool
from lynx_vllm.prefill import Match
from lynx_vllm.staging import Elements, Geometry, PoolFile, map_pool

GEOMETRY = Geometry(layers=2, kv_heads=3, head_dim=16)
BLOCK = 128
PROMPT = list(range(300))


def layout() -> Layout:
    """Blocks as [head][K then V][token][channel]."""

    def store(keys: Any, values: Any) -> Any:
        return np.stack([keys.transpose(1, 0, 2), values.transpose(1, 0, 2)], axis=1).ravel()

    return measure(store, BLOCK, GEOMETRY.kv_heads, GEOMETRY.head_dim)


def caches(seed: int | None) -> list[Elements]:
    """vLLM's blocks: of anything, or of nothing."""
    shape = (8, GEOMETRY.kv_heads * 2 * BLOCK * GEOMETRY.head_dim)
    if seed is None:
        return [np.zeros(shape, dtype=np.uint16) for _ in range(GEOMETRY.layers)]
    random = np.random.default_rng(seed)
    return [random.integers(0, 1 << 16, shape, dtype=np.uint16) for _ in range(GEOMETRY.layers)]


def start(folder: Path, role: Role) -> Engine:
    options = Options(role, folder / "agent.sock", folder, staging_blocks=12, weights="w")
    engine = Engine(options, Model("m", b"f", GEOMETRY, 500, "a test's"), "12345678-9abc")
    engine.start(HostPool(PoolFile(folder, GEOMETRY, 12)))
    return engine


@pytest.fixture
def prefill(folder: Path, agent: Agent) -> Iterator[Engine]:
    engine = start(folder, Role.PREFILL)
    yield engine
    engine.close()


@pytest.fixture
def decode(folder: Path, agent: Agent) -> Iterator[Engine]:
    engine = start(folder, Role.DECODE)
    yield engine
    engine.close()


def test_an_engine_says_who_it_is_and_how_it_does(folder: Path, agent: Agent, prefill: Engine) -> None:
    attach = agent.attached.get(timeout=PATIENCE)
    assert (attach.model, attach.weights, attach.role, attach.generates) == ("m", "w", api.ROLE_PREFILL, False)
    assert attach.layout.block_stride * attach.pool.blocks == (folder / attach.pool.file).stat().st_size
    assert agent.hear_report().free_blocks == 12


def test_a_prompts_kv_is_staged_and_told_layer_by_layer(folder: Path, agent: Agent, prefill: Engine) -> None:
    agent.attached.get(timeout=PATIENCE)
    cache = caches(1)
    copier = Copier(folder, GEOMETRY, layout(), cache, Sender(path_of(folder, "12345678")))
    agent.say(prefill=api.Prefill(request=5, tokens=PROMPT, from_token=64))
    match, key = prefill.prefills.match(5, PROMPT, 128)
    while match is Match.WAIT:
        match, key = prefill.prefills.match(5, PROMPT, 128)
    prefill.prefills.begun(key, 1)
    for end in (200, 300):
        save = prefill.prefills.step(key, end)
        assert save is not None
        copier.begin(Step(prefill.pool.name, 12, stores=[Store(save, (4, 0, 6), end == 300)]))
        for layer in range(GEOMETRY.layers):
            copier.layer_done(layer)
    prefill.tell_events(Event(What.DONE, key, end=77))
    started = agent.hear("prefill_started")
    assert started.cached_tokens == 128
    spans = [agent.hear("published") for _ in range(4)]
    assert [(one.layer, one.first_token, one.end_token) for one in spans] == [
        (0, 128, 200),
        (1, 128, 200),
        (0, 200, 300),
        (1, 200, 300),
    ]
    assert agent.hear("prefill_done").first_token == 77
    assert agent.hear("finished").request == 5
    staged = map_pool(folder / prefill.pool.name, GEOMETRY, 12)[list(started.blocks)]
    for layer in range(GEOMETRY.layers):
        # [block][token][head][channel], of K and of V.
        native = cache[layer][[4, 0, 6]].reshape(3, 3, 2, BLOCK, 16).transpose(2, 0, 3, 1, 4).reshape(2, -1, 3, 16)
        keys = staged[:, layer, :, 0].reshape(5, 3, 16, 64).transpose(0, 3, 1, 2).reshape(-1, 3, 16)
        values = staged[:, layer, :, 1].reshape(5, 3, 64, 16).transpose(0, 2, 1, 3).reshape(-1, 3, 16)
        assert np.array_equal(keys[64:300], native[0, 64:300])
        assert np.array_equal(values[64:300], native[1, 64:300])
    agent.say(release=api.Release(request=5))


def test_kv_that_comes_is_loaded_where_vllm_wants_it(folder: Path, agent: Agent, decode: Engine) -> None:
    agent.attached.get(timeout=PATIENCE)
    incomings = decode.incomings
    while incomings.expect("a", 4, PROMPT, 128, api.Sampling()) is None:
        pass
    expect = agent.hear("expect")
    assert (expect.client, expect.from_token) == (4, 128)
    pool = map_pool(folder / decode.pool.name, GEOMETRY, 12)
    sent = np.random.default_rng(2).integers(0, 1 << 16, pool[list(expect.blocks)].shape, dtype=np.uint16)
    pool[list(expect.blocks)] = sent
    agent.say(full_ready=api.FullReady(request=expect.request, exact=True))
    view = incomings.view("a")
    while view is not None and view.phase is not Phase.FULL:
        view = incomings.view("a")
    assert view is not None
    cache = caches(None)
    copier = Copier(folder, GEOMETRY, layout(), cache, Sender(path_of(folder, "12345678")))
    load = Load(view.staging, (7, 1, 2), 128, 298, is_exact=True)
    copier.begin(Step(decode.pool.name, 12, loads=[load]))
    for layer in range(GEOMETRY.layers):
        native = cache[layer][[7, 1, 2]].reshape(3, 3, 2, BLOCK, 16).transpose(2, 0, 3, 1, 4).reshape(2, -1, 3, 16)
        keys = sent[:, layer, :, 0].reshape(5, 3, 16, 64).transpose(0, 3, 1, 2).reshape(-1, 3, 16)
        values = sent[:, layer, :, 1].reshape(5, 3, 64, 16).transpose(0, 2, 1, 3).reshape(-1, 3, 16)
        for native_part, sent_part in ((native[0], keys), (native[1], values)):
            assert np.array_equal(native_part[128:298], sent_part[128:298])
            assert not native_part[:128].any()
            assert not native_part[298:].any()
    incomings.used("a")
    incomings.finished("a", api.FINISH_REASON_LENGTH)
    assert agent.hear("finished").reason == api.FINISH_REASON_LENGTH


def test_sockets_that_nobody_listens_on_are_removed(folder: Path, agent: Agent) -> None:
    stale = folder / "vllm-stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(stale))
    engine = start(folder, Role.DECODE)
    assert not stale.exists()
    assert path_of(folder, "12345678").exists()
    engine.close()
    assert not path_of(folder, "12345678").exists()


def test_an_engine_is_asked_only_for_what_it_is_for(agent: Agent, decode: Engine) -> None:
    agent.attached.get(timeout=PATIENCE)
    agent.say(prefill=api.Prefill(request=1, tokens=[1]))
    assert "decode engine" in agent.hear("refused").reason
    agent.say(submit=api.Submit(request=2))
    assert "HTTP" in agent.hear("refused").reason
    agent.say(forget=api.Forget())
    agent.hear("forgotten")
    assert decode.wants_empty_cache
    assert decode.word.wait(PATIENCE)
