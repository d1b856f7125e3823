"""What prompts that are computed here and KV that is on its way have in common: one lock, one staging pool, and an agent who
may be there or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .api import engine_pb2 as api
from .staging import Blocks


class Requests:
    """Requests of one kind. Nothing here waits; what subclasses do they do under the lock."""

    def __init__(self, blocks: Blocks, lock: threading.RLock, now: Callable[[], float]) -> None:
        self._blocks = blocks
        self._lock = lock
        self._now = now
        #: How to speak to the agent; `None` while none is there.
        self._say: Callable[[api.FromEngine], None] | None = None

    def attached(self, say: Callable[[api.FromEngine], None]) -> None:
        """An agent is there."""
        with self._lock:
            self._say = say

    def _tell(self, message: api.FromEngine) -> None:
        if self._say is not None:
            self._say(message)

    def _tell_finished(self, number: int, reason: api.FinishReason) -> None:
        finished = api.Finished(request=number, reason=reason, end_unix_ns=time.time_ns())
        self._tell(api.FromEngine(finished=finished))
