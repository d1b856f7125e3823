"""An agent, as far as an engine can tell: a Unix socket, a stream, and whatever a test has it say."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from lynx_vllm.api import engine_pb2 as api

#: How long a test waits for a word, in seconds.
PATIENCE = 20.0


class Agent:
    """Listens until it is closed; one engine at a time."""

    def __init__(self, socket: Path, refuse: str | None = None) -> None:
        self.refuse = refuse
        self.refused: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.attached: queue.SimpleQueue[api.Attach] = queue.SimpleQueue()
        self._heard: queue.SimpleQueue[api.FromEngine] = queue.SimpleQueue()
        self._words: queue.SimpleQueue[api.FromAgent | None] = queue.SimpleQueue()
        #: Called with what the engine says, instead of keeping it.
        self.listener: Callable[[api.FromEngine], None] | None = None
        handler = grpc.stream_stream_rpc_method_handler(
            self._attach,
            request_deserializer=api.FromEngine.FromString,
            response_serializer=api.FromAgent.SerializeToString,
        )
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4))
        service = grpc.method_handlers_generic_handler("lynx.engine.v1.EngineApi", {"Attach": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def say(self, **kind: Any) -> None:
        """Says something to the engine, as `say(release=api.Release(request=1))`."""
        self._words.put(api.FromAgent(**kind))

    def hear(self, kind: str) -> Any:
        """The next thing that the engine says, which must be of this kind; reports and the cache's news are passed over."""
        while True:
            message = self._heard.get(timeout=PATIENCE)
            found = message.WhichOneof("kind")
            if found == kind:
                return getattr(message, kind)
            assert found in ("report", "cached_blocks"), f"{found} came instead of {kind}: {message}"

    def hear_report(self) -> api.Report:
        """The next report."""
        return self.hear("report")

    def hang_up(self) -> None:
        """Ends the stream."""
        self._words.put(None)

    def close(self) -> None:
        """Listens no more."""
        self.hang_up()
        self._server.stop(grace=None).wait()

    def _attach(self, requests: Iterator[api.FromEngine], context: grpc.ServicerContext) -> Iterator[api.FromAgent]:
        first = next(requests)
        assert first.WhichOneof("kind") == "attach"
        if self.refuse is not None:
            self.refused.put(None)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refuse)
        self._words = queue.SimpleQueue()
        listening = ThreadPoolExecutor(max_workers=1)
        listening.submit(self._listen, requests)
        yield api.FromAgent(attached=api.Attached(agent="a test's"))
        self.attached.put(first.attach)
        while (message := self._words.get()) is not None:
            yield message

    def _listen(self, requests: Iterator[api.FromEngine]) -> None:
        try:
            for message in requests:
                if self.listener is not None:
                    self.listener(message)
                else:
                    self._heard.put(message)
        except grpc.RpcError:
            return
