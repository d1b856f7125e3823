"""The scheduler's side of the connector, without vLLM: the staging pool, the agent, and what the two say of each request."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .api import engine_pb2 as api
from .caching import Cached
from .channel import Event, Receiver, Sender, path_of
from .decode import Incomings
from .link import Link
from .options import Options, Role
from .pools import Pool
from .prefill import Prefills
from .staging import Blocks, Geometry

#: How old a report may become, in seconds.
REPORT = 1.0


@dataclass(frozen=True)
class Model:
    """What the agent is told of the model."""

    #: As clients may ask for it.
    name: str
    fingerprint: bytes
    geometry: Geometry
    context_tokens: int
    #: The engine's name and version, for people.
    engine: str


class Engine:
    """One vLLM, as its agent sees it."""

    def __init__(self, options: Options, model: Model, engine_id: str) -> None:
        self.options = options
        self.model = model
        self._pool: Pool | None = None
        self.blocks = Blocks(options.staging_blocks)
        # One lock for all of it: what happens under it takes microseconds.
        lock = threading.RLock()
        self.prefills = Prefills(self.blocks, lock)
        self.incomings = Incomings(self.blocks, lock, options.patience)
        self.cached = Cached(lock)
        path = path_of(options.shared_directory, engine_id)
        self._receiver = Receiver(path, self.prefills.heard, self.tick, REPORT)
        self._sender = Sender(path)
        self._link: Link | None = None
        self._say: Callable[[api.FromEngine], None] | None = None
        self._reported = 0.0
        #: Set when the agent has said something.
        self.word = threading.Event()
        #: Whether the agent wants the prefix cache emptied. Only a step can do that.
        self.wants_empty_cache = False
        #: Requests that run and that wait, and how long a step takes that computes one token of each, in nanoseconds.
        self.running = 0
        self.waiting = 0
        self.token_time_ns = 0

    def start(self, pool: Pool) -> None:
        """Begins to dial the agent."""
        self._pool = pool
        self._receiver.start()
        self._link = Link(self.options.socket, self._offer, self)
        self._link.start()

    @property
    def pool(self) -> Pool:
        """The staging pool; only once there is one."""
        assert self._pool is not None
        return self._pool

    def close(self) -> None:
        """Lets the agent go, and removes the pool."""
        if self._link is not None:
            self._link.close()
            self._receiver.close()
            self.pool.close()
        self._sender.close()

    def tell_events(self, event: Event) -> None:
        """Says something behind all that the worker has said so far."""
        self._sender.tell(event)

    # What the link says.

    def attached(self, send: Callable[[api.FromEngine], None]) -> None:
        """An agent has taken the engine."""
        self._say = send
        self.prefills.attached(send)
        self.incomings.attached(send)
        if self.options.role is Role.PREFILL:
            self.cached.attached(send)
        self._report(time.monotonic())

    def lost(self) -> None:
        """The agent is gone."""
        self._say = None
        self.prefills.lost()
        self.incomings.lost()
        self.cached.lost()
        self.word.set()

    def heard(self, message: api.FromAgent) -> None:
        """What the agent says. A kind that is not known here has no meaning for this engine."""
        kind = message.WhichOneof("kind")
        if kind == "prefill":
            self._prefill(message.prefill)
        elif kind == "release":
            self.prefills.released(message.release.request)
        elif kind == "want_grant":
            self.incomings.want_grant(message.want_grant.request)
        elif kind == "anchor_ready":
            self.incomings.anchor_ready(message.anchor_ready)
        elif kind == "grant_returned":
            self.incomings.grant_returned(message.grant_returned.request)
        elif kind == "full_ready":
            self.incomings.full_ready(message.full_ready.request, is_exact=message.full_ready.exact)
        elif kind == "kv_failed":
            self.incomings.kv_failed(message.kv_failed.request, message.kv_failed.reason)
        elif kind == "abort":
            self.prefills.aborted(message.abort.request)
            self.incomings.kv_failed(message.abort.request, "the agent has given it up")
        elif kind == "forget":
            self._forget()
        elif kind == "submit":
            self._refuse(message.submit.request, "this engine generates for nobody: send it over HTTP")
        self.word.set()

    def _prefill(self, prefill: api.Prefill) -> None:
        if self.options.role is Role.PREFILL:
            self.prefills.asked(prefill)
        else:
            self._refuse(prefill.request, "this is a decode engine: send what it is not for to another")

    def _forget(self) -> None:
        self.prefills.forget()
        self.incomings.forget()
        self.wants_empty_cache = True
        self._tell(api.FromEngine(forgotten=api.Forgotten()))

    def _refuse(self, request: int, why: str) -> None:
        self._tell(api.FromEngine(refused=api.Refused(request=request, reason=why)))

    def tick(self) -> None:
        """Time passes."""
        now = time.monotonic()
        if now - self._reported >= REPORT:
            self.prefills.sweep()
            self._report(now)

    def _report(self, now: float) -> None:
        self._reported = now
        report = api.Report(
            running=self.running,
            waiting=self.waiting,
            free_blocks=self.blocks.free,
            token_time_ns=self.token_time_ns,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        self._tell(api.FromEngine(report=report))

    def _tell(self, message: api.FromEngine) -> None:
        say = self._say
        if say is not None:
            say(message)

    @contextlib.contextmanager
    def _offer(self) -> Iterator[api.Attach]:
        role = api.ROLE_PREFILL if self.options.role is Role.PREFILL else api.ROLE_DECODE
        with self.pool.offered(self.options.socket) as pool:
            yield api.Attach(
                api_version=1,
                engine=self.model.engine,
                role=role,
                model=self.model.name,
                model_fingerprint=self.model.fingerprint,
                layout=self.pool.layout(),
                pool=pool,
                generates=False,
                context_tokens=self.model.context_tokens,
                weights=self.options.weights,
            )
