"""How long a step takes that computes one token of each of its requests."""

from __future__ import annotations

#: What a new measurement weighs.
WEIGHT = 0.2


class Pace:
    """A mean that forgets."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._mean = 0.0

    def began(self, tokens: list[int], unix_ns: int) -> None:
        """A step begins, with so many tokens of each request."""
        self._began = unix_ns if tokens and all(count == 1 for count in tokens) else None

    def ended(self, unix_ns: int) -> int:
        """It has ended. The mean in nanoseconds; 0 before the first measurement."""
        if self._began is not None:
            took = unix_ns - self._began
            self._mean = took if not self._mean else self._mean + WEIGHT * (took - self._mean)
            self._began = None
        return int(self._mean)
