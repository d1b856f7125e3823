"""Who stands in for others in tests."""

from __future__ import annotations

from lynx_vllm.api import engine_pb2 as api


class Told(list[api.FromEngine]):
    """What the agent hears."""

    def kinds(self) -> list[str | None]:
        return [message.WhichOneof("kind") for message in self]


class Clock:
    """A test's own time."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
