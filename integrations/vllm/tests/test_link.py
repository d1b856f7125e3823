"""The stream to the agent, over a real Unix socket."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from agent import PATIENCE, Agent

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.link import Link, SocketError, check


class Heard:
    """Keeps what the link says."""

    def __init__(self) -> None:
        self.senders: queue.SimpleQueue[Callable[[api.FromEngine], None]] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[api.FromAgent] = queue.SimpleQueue()
        self.losses: queue.SimpleQueue[None] = queue.SimpleQueue()

    def attached(self, send: Callable[[api.FromEngine], None]) -> None:
        self.senders.put(send)

    def heard(self, message: api.FromAgent) -> None:
        self.messages.put(message)

    def lost(self) -> None:
        self.losses.put(None)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def link(folder: Path, heard: Heard) -> Iterator[Link]:
    link = Link(folder / "agent.sock", lambda: nullcontext(api.Attach(api_version=1, model="m")), heard)
    link.start()
    yield link
    link.close()


def test_words_go_both_ways_in_order(agent: Agent, link: Link, heard: Heard) -> None:
    assert agent.attached.get(timeout=PATIENCE).model == "m"
    send = heard.senders.get(timeout=PATIENCE)
    for number in range(100):
        send(api.FromEngine(write_grant=api.WriteGrant(request=number)))
        agent.say(want_grant=api.WantGrant(request=number))
    assert [agent.hear("write_grant").request for _ in range(100)] == list(range(100))
    said = [heard.messages.get(timeout=PATIENCE) for _ in range(100)]
    assert [message.want_grant.request for message in said] == list(range(100))


def test_an_agent_that_comes_late_or_anew_is_found(folder: Path, link: Link, heard: Heard) -> None:
    for _ in range(2):
        agent = Agent(folder / "agent.sock")
        agent.attached.get(timeout=PATIENCE)
        heard.senders.get(timeout=PATIENCE)
        agent.close()
        heard.losses.get(timeout=PATIENCE)


def test_a_stream_that_ends_is_dialled_again(agent: Agent, link: Link, heard: Heard) -> None:
    agent.attached.get(timeout=PATIENCE)
    agent.hang_up()
    heard.losses.get(timeout=PATIENCE)
    agent.attached.get(timeout=PATIENCE)
    assert heard.senders.get(timeout=PATIENCE) is not heard.senders.get(timeout=PATIENCE)


def test_an_agent_that_refuses_is_heard_and_asked_again(
    folder: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lynx_vllm.link.REFUSED_PAUSE", 0.01)
    agent = Agent(folder / "agent.sock", refuse="the layers differ")
    link = Link(folder / "agent.sock", lambda: nullcontext(api.Attach()), heard)
    link.start()
    assert agent.refused.get(timeout=PATIENCE) is None
    assert agent.refused.get(timeout=PATIENCE) is None
    agent.refuse = None
    heard.senders.get(timeout=PATIENCE)
    link.close()
    agent.close()
    # Once, however often it was refused.
    assert caplog.text.count("the layers differ") == 1
    assert heard.losses.qsize() == 1


def test_a_socket_that_no_agent_could_listen_on_is_refused(folder: Path) -> None:
    with pytest.raises(SocketError, match="107 bytes"):
        check(Path("/" + "a" * 120))
    with pytest.raises(SocketError, match="mounted"):
        check(folder / "none" / "agent.sock")
    check(folder / "agent.sock")
