"""What a user tells the package, and what it says back."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lynx_vllm import fingerprint
from lynx_vllm.channel import Event, What
from lynx_vllm.options import Options, OptionsError, Role
from lynx_vllm.pace import Pace
from lynx_vllm.proposer import LynxProposer
from lynx_vllm.sampling import for_agent, may_draft, most_drafts
from lynx_vllm.version import VLLM, WrongVllm, require_vllm

EXTRA = {"socket": "/run/lynx/agent.sock", "shared_directory": "/dev/shm/lynx", "staging_blocks": 64}


def test_options_are_taken_from_vllms_configuration() -> None:
    options = Options.parse("kv_consumer", EXTRA | {"patience": 5}, {"LYNX_ROLE": "prefill"})
    assert options.role is Role.DECODE
    assert (options.shared_directory, options.staging_blocks, options.patience) == (Path("/dev/shm/lynx"), 64, 5.0)


def test_what_the_configuration_leaves_open_the_environment_says() -> None:
    environment = {"LYNX_ROLE": "prefill", "LYNX_ENGINE_SOCKET": "/a", "LYNX_SHARED_DIRECTORY": "/b"}
    options = Options.parse("kv_both", {"staging_blocks": 1, "socket": "/c"}, environment)
    assert (options.role, options.socket, options.shared_directory) == (Role.PREFILL, Path("/c"), Path("/b"))


@pytest.mark.parametrize(
    ("role", "extra", "why"),
    [
        ("kv_both", EXTRA, "kv_producer on prefill nodes"),
        (None, EXTRA, "kv_producer on prefill nodes"),
        ("kv_producer", {}, "lacks 'socket'"),
        ("kv_producer", EXTRA | {"sokcet": "/x"}, "has no 'sokcet'"),
        ("kv_producer", EXTRA | {"staging_blocks": "many"}, "can't be read"),
        ("kv_producer", EXTRA | {"staging_blocks": 0}, "at least one"),
        ("kv_producer", EXTRA | {"patience": 0}, "give a time"),
    ],
)
def test_options_that_can_not_be_used_are_named(role: str | None, extra: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionsError, match=why):
        Options.parse(role, extra, {})


def test_another_vllm_is_refused_by_name() -> None:
    require_vllm(VLLM)
    require_vllm(f"{VLLM}+cpu")
    with pytest.raises(WrongVllm, match="0.33.1 is installed"):
        require_vllm("0.33.1")


def test_models_with_other_weights_have_other_fingerprints(tmp_path: Path) -> None:
    config = {"hidden_size": 3, "transformers_version": "5"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(fingerprint.FingerprintError, match="no weights"):
        fingerprint.of_folder(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"a" * 100)
    first = fingerprint.of_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"transformers_version": "6"}))
    assert fingerprint.of_folder(tmp_path) == first
    weights.write_bytes(b"a" * 99 + b"b")
    assert fingerprint.of_folder(tmp_path) != first
    with pytest.raises(fingerprint.FingerprintError, match="can't be read"):
        fingerprint.of_folder(tmp_path / "none")


def params(**other: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "temperature": 0.0,
        "seed": None,
        "top_k": -1,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_tokens": 0,
        "max_tokens": None,
        "repetition_detection": None,
        "structured_outputs": None,
        "bad_words": None,
        "allowed_token_ids": None,
        "logit_bias": None,
        "logprobs": None,
        "prompt_logprobs": None,
    }
    return SimpleNamespace(**fields | other)


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"seed": 1},
        {"temperature": 0.7},
        {"temperature": 1.0, "top_k": 5},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"repetition_penalty": 1.1},
        {"min_tokens": 3},
        {"bad_words": ["x"]},
        {"allowed_token_ids": [1]},
        {"logprobs": 0},
    ],
)
def test_what_depends_on_the_tokens_alone_may_be_drafted(fine: dict[str, Any]) -> None:
    assert may_draft(params(**fine))


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 0.7, "seed": 1},
        {"structured_outputs": object()},
        {"logit_bias": {1: 2.0}},
        {"prompt_logprobs": 1},
    ],
)
def test_what_depends_on_steps_is_not(other: dict[str, Any]) -> None:
    assert not may_draft(params(**other))


@pytest.mark.parametrize(
    ("max_tokens", "min_tokens", "most"), [(20, 0, 19), (None, 0, 99), (500, 0, 99), (20, 6, 5), (1, 1, 0), (4, 9, 3)]
)
def test_drafts_leave_room_for_one_token_and_never_reach_the_least_that_is_asked_for(
    max_tokens: int | None, min_tokens: int, most: int
) -> None:
    assert most_drafts(params(max_tokens=max_tokens, min_tokens=min_tokens), 100) == most


def test_the_agent_is_told_how_tokens_are_sampled() -> None:
    told = for_agent(params(temperature=0.5, top_k=-1, top_p=0.25, seed=3))
    assert (told.temperature, told.top_k, told.top_p, told.seed) == (0.5, 0, 0.25, 3)


def test_events_are_read_as_they_were_written_and_others_are_none() -> None:
    event = Event(What.SAVED, 1 << 63, 2, 3, 4, 5, 6)
    assert Event.unpack(event.pack()) == event
    assert Event.unpack(b"") is None
    assert Event.unpack(b"\xff" + event.pack()[1:]) is None


def test_the_pace_is_that_of_steps_with_one_token_each() -> None:
    pace = Pace()
    pace.began([5, 1], 0)
    assert pace.ended(100) == 0
    pace.began([1, 1], 0)
    assert pace.ended(100) == 100
    pace.began([1], 0)
    assert pace.ended(200) == 120


def test_nothing_is_proposed() -> None:
    assert LynxProposer(None).propose([[1], []]) == [[], []]
