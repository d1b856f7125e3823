"""Who stands in for others in tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lynx_vllm.api import engine_pb2 as api
from lynx_vllm.gpu_copying import Numbers


class Told(list[api.FromEngine]):
    """What the agent hears."""

    def kinds(self) -> list[str | None]:
        return [message.WhichOneof("kind") for message in self]


class Clock:
    """A test's own time."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Mark:
    """A moment that has come when the test says so, or when somebody waits for it."""

    def __init__(self, has_come: bool) -> None:
        self.has_come = has_come

    def query(self) -> bool:
        return self.has_come

    def synchronize(self) -> None:
        self.has_come = True


class Processor:
    """Copies at once, as if it were a GPU; one that isn't quick says that it takes its time."""

    def __init__(self, is_quick: bool = False) -> None:
        self.is_quick = is_quick
        self.marks: list[Mark] = []
        self._is_aside = False

    def index(self, numbers: Numbers) -> Numbers:
        return numbers

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        self._is_aside = True
        yield
        self._is_aside = False

    def mark(self) -> Mark:
        assert not self._is_aside
        self.marks.append(Mark(self.is_quick))
        return self.marks[-1]

    def host(self, array: Any) -> Any:
        return array
