"""What several tests want."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent import Agent
from doubles import Clock, Told

from lynx_vllm.staging import Blocks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory that engine and agent share."""
    return tmp_path


@pytest.fixture
def agent(folder: Path) -> Iterator[Agent]:
    """An agent that listens on agent.sock in it."""
    listening = Agent(folder / "agent.sock")
    yield listening
    listening.close()


@pytest.fixture
def told() -> Told:
    """What the agent hears."""
    return Told()


@pytest.fixture
def clock() -> Clock:
    """A time that stands still."""
    return Clock()


@pytest.fixture
def blocks() -> Blocks:
    """Six blocks of a staging pool."""
    return Blocks(6)
