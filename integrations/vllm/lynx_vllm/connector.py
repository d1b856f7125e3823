"""vLLM's KV connector interface, and Lynx behind it. vLLM makes one of these for its scheduler and one for each worker."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import pinned as pinned  # The check comes first.

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

from . import __version__, fingerprint
from .api import engine_pb2 as api
from .channel import Event, What
from .drafting import Drafts, Verified
from .engine import Engine, Model
from .messages import Load, Step, Store
from .options import Options, OptionsError, Role
from .pools import Exported, GpuPool, HostPool
from .prefill import Match
from .receiving import Ask, Receiving
from .sampling import for_agent, may_draft
from .sequence import VllmSequence
from .staging import Geometry, PoolFile
from .version import installed
from .worker import Worker

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

log = logging.getLogger(__name__)


def speak_as_vllm() -> None:
    """Has this package's log go where vLLM's goes."""
    ours, theirs = logging.getLogger("lynx_vllm"), logging.getLogger("vllm")
    if not ours.handlers:
        ours.handlers = list(theirs.handlers)
        ours.setLevel(theirs.level)
        ours.propagate = False


@dataclass
class Metadata(KVConnectorMetadata):
    """A step's copies, as vLLM carries them to the worker."""

    step: Step = field(default_factory=Step)


@dataclass
class Handshake(KVConnectorHandshakeMetadata):
    """What a worker has for the scheduler's side: the staging pool, where it is on a GPU."""

    exported: Exported


class LynxConnector(KVConnectorBase_V1):
    """Both sides; which one this is, vLLM says."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        speak_as_vllm()
        transfer = vllm_config.kv_transfer_config
        self.options = Options.parse(transfer.kv_role, transfer.kv_connector_extra_config, os.environ)
        self.geometry = geometry_of(vllm_config, kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: Worker | None = None
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(vllm_config, self.options, self.geometry)
        else:
            self._worker = Worker(vllm_config, self.options, self.geometry)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Yes: a layer's end is heard of outside of graphs only."""
        return True

    @property
    def requires_kv_delivery(self) -> bool:
        """What was saved is in the staging pool: a preempted request owes nobody anything."""
        return False

    @property
    def scheduler(self) -> SchedulerSide:
        """The scheduler's side; only there."""
        assert self._scheduler is not None
        return self._scheduler

    @property
    def worker(self) -> Worker:
        """The worker's side; only there."""
        assert self._worker is not None
        return self._worker

    def shutdown(self) -> None:
        """vLLM ends."""
        if self._scheduler is not None:
            self._scheduler.engine.close()

    # The worker's side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """vLLM's blocks, layer by layer."""
        self.worker.register(kv_caches)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """A step is about to begin."""
        super().bind_connector_metadata(connector_metadata)
        assert isinstance(connector_metadata, Metadata)
        self.worker.begin(connector_metadata.step)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Nothing: what a step needs is there since its metadata was bound, which is before every forward pass."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: as above."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: Any
    ) -> None:
        """A layer's keys and values are written."""
        self.worker.layer_done(layer_name)

    def wait_for_save(self) -> None:
        """The step's layers are over; vLLM's blocks are its own again when their copies are."""
        self.worker.finish()

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """What the scheduler's side has to know of this worker before it speaks to an agent."""
        exported = self.worker.exported
        return None if exported is None else Handshake(exported)

    # The scheduler's side.

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        """What the worker has said; nothing on a CPU."""
        for worker in metadata.values():
            assert isinstance(worker, Handshake)
            self.scheduler.start_on_gpu(worker.exported)

    def bind_gpu_block_pool(self, gpu_block_pool: BlockPool) -> None:
        """vLLM's prefix cache, which tells what becomes of its blocks where somebody asks for it."""
        if self.options.role is Role.PREFILL:
            listen(gpu_block_pool, self.scheduler.cache_events)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """How many tokens behind these need not be computed; `None` while nobody can tell. They are loaded in the step that
        begins with them, never beside other steps."""
        return self.scheduler.matched(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """vLLM has blocks for a request, which runs from the next step on."""
        self.scheduler.admitted(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Metadata:
        """What the worker is to copy in a step."""
        return Metadata(self.scheduler.step(scheduler_output))

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """A request has ended. Its blocks are vLLM's again at once: what others read of it is in the staging pool."""
        self.scheduler.finished(request)
        return False, None


class SchedulerSide:
    """What the scheduler's process does."""

    def __init__(self, vllm_config: VllmConfig, options: Options, geometry: Geometry) -> None:
        self.options = options
        self.geometry = geometry
        self.engine = Engine(
            options, model_of(vllm_config, options, geometry), vllm_config.kv_transfer_config.engine_id
        )
        self.receiving = Receiving(self.engine.incomings)
        #: Prompts that are computed for others, by what vLLM calls them: the keys of their transfers.
        self._serving: dict[str, int] = {}
        self._live: set[str] = set()
        self._asks: dict[str, Ask] = {}
        #: How long a sequence may become, and how many tokens of it vLLM hashes at once.
        self._most_tokens = 0
        self._hash_block = 1
        self._has_warned = False
        kind = vllm_config.device_config.device_type
        if kind == "cpu":
            self.engine.start(HostPool(PoolFile(options.shared_directory, geometry, options.staging_blocks)))
        elif kind != "cuda":
            raise OptionsError(f"vLLM runs on {kind}: Lynx takes KV in a CPU's memory, or in an NVIDIA GPU's")

    def start_on_gpu(self, exported: Exported) -> None:
        """The worker has the staging pool, on its GPU."""
        if exported.process != os.getpid():
            raise OptionsError("vLLM's worker is a process of its own: run vLLM with --distributed-executor-backend uni")
        self.engine.start(GpuPool(exported, self.geometry, self.options.staging_blocks))

    def cache_events(self, events: list[KVCacheEvent]) -> None:
        """What has become of the prefix cache's blocks."""
        cached = self.engine.cached
        for event in events:
            if isinstance(event, BlockStored):
                # Blocks whose tokens alone don't say what is in them: an adapter's, or those of a request with a salt.
                if not any(event.extra_keys or ()):
                    cached.stored(event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size)
            elif isinstance(event, BlockRemoved):
                cached.removed(event.block_hashes)
            elif isinstance(event, AllBlocksCleared):
                cached.cleared()

    def can_draft(self, drafts: Drafts, most_tokens: int, hash_block: int) -> None:
        """A scheduler that drafts has come forward."""
        self.receiving.drafts = drafts
        self._most_tokens = most_tokens
        self._hash_block = hash_block

    def is_receiving(self, request_id: str) -> bool:
        """Whether a request's KV comes, or came, from elsewhere."""
        return request_id in self._asks

    def matched(self, request: Request, local: int) -> int | None:
        """See `LynxConnector.get_num_new_matched_tokens`."""
        self._live.add(request.request_id)
        lynx = parameters(request)
        if not lynx or not is_plain(request):
            return 0
        if self.options.role is Role.PREFILL and "prefill" in lynx:
            match, key = self.engine.prefills.match(int(lynx["prefill"]), request.prompt_token_ids, local)
            if match is Match.WAIT:
                return None
            if match is Match.SERVE:
                self._serving[request.request_id] = key
        elif self.options.role is Role.DECODE and "client" in lynx and request.num_output_tokens == 0:
            return self.receiving.matched(self._ask(request, int(lynx["client"])), local)
        return 0

    def admitted(self, request: Request, external: int) -> None:
        """See `LynxConnector.update_state_after_alloc`."""
        key = self._serving.get(request.request_id)
        if key is not None:
            self.engine.prefills.begun(key, time.time_ns())
        elif request.request_id in self._asks:
            self.receiving.admitted(request.request_id, external)

    def step(self, output: SchedulerOutput) -> Step:
        """See `LynxConnector.build_connector_meta`."""
        scheduled = output.num_scheduled_tokens
        self.engine.running = len(scheduled)
        self.engine.waiting = max(0, len(self._live) - len(scheduled))
        step = Step(self.engine.pool.name, self.engine.pool.blocks)
        state = output.kv_connector_block_state
        for request_id, loading in self.receiving.loads(list(scheduled)).items():
            blocks = tuple(state.get_block_ids(request_id)[0])
            name = self._name(self._asks[request_id].prompt)
            step.loads.append(Load(loading.staging, blocks, loading.first, loading.end, loading.is_exact, name))
        for request_id, key in self._serving.items():
            if request_id in scheduled:
                end = self._computed(output, request_id) + scheduled[request_id]
                save = self.engine.prefills.step(key, end)
                if save is not None:
                    blocks = tuple(state.get_block_ids(request_id)[0])
                    prompt = self.engine.prefills.prompt(key)
                    step.stores.append(Store(save, blocks, save.end == len(prompt), self._name(prompt)))
        return step

    def finished(self, request: Request) -> None:
        """See `LynxConnector.request_finished`."""
        request_id = request.request_id
        self._live.discard(request_id)
        reason = {
            RequestStatus.FINISHED_STOPPED: api.FINISH_REASON_STOP,
            RequestStatus.FINISHED_LENGTH_CAPPED: api.FINISH_REASON_LENGTH,
            RequestStatus.FINISHED_ABORTED: api.FINISH_REASON_ABORTED,
        }.get(request.status, api.FINISH_REASON_FAILED)
        key = self._serving.pop(request_id, None)
        if key is not None:
            # Behind what the worker has said of its layers.
            if reason in (api.FINISH_REASON_STOP, api.FINISH_REASON_LENGTH) and request.num_output_tokens:
                self.engine.tell_events(Event(What.DONE, key, end=request.output_token_ids[0]))
            else:
                self.engine.tell_events(Event(What.ENDED, key))
        if self._asks.pop(request_id, None) is not None:
            self.receiving.finished(request_id, reason)

    def log_verified(self, request_id: str, verified: Verified, rows: int, blocks: int) -> None:
        """For tests: what a verification took and gave."""
        prompt = self._asks[request_id].prompt
        log.info(
            "lynx verified %s of %d tokens: %d drafted, %d kept, %d rows in one forward pass, %d blocks",
            self._name(prompt),
            len(prompt),
            verified.drafted,
            verified.kept,
            rows,
            blocks,
        )

    def _ask(self, request: Request, client: int) -> Ask:
        ask = self._asks.get(request.request_id)
        if ask is None:
            if self.receiving.drafts is None and not self._has_warned:
                self._has_warned = True
                log.warning(
                    "nothing is drafted, since vLLM runs without --scheduler-cls and --speculative-config of Lynx's"
                )
            params = request.sampling_params
            ask = Ask(
                request.request_id,
                client,
                request.prompt_token_ids,
                for_agent(params),
                may_draft(params) and request.structured_output_request is None,
                VllmSequence(request, self._most_tokens, self._hash_block),
            )
            self._asks[request.request_id] = ask
        return ask

    def _name(self, prompt: Any) -> str:
        if not self.options.diagnostics:
            return ""
        return hashlib.sha256(",".join(map(str, prompt)).encode()).hexdigest()[:16]

    @staticmethod
    def _computed(output: SchedulerOutput, request_id: str) -> int:
        """How many tokens of a request were computed before a step."""
        for new in output.scheduled_new_reqs:
            if new.req_id == request_id:
                return int(new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        return int(cached.num_computed_tokens[cached.req_ids.index(request_id)])


def listen(pool: BlockPool, heard: Callable[[list[KVCacheEvent]], None]) -> None:
    """Has the prefix cache's events heard, which vLLM takes once a step. It gets them only where it has asked for them."""
    is_asked_for, take = pool.enable_kv_cache_events, pool.take_events
    pool.enable_kv_cache_events = True

    def taken() -> list[KVCacheEvent]:
        events = take()
        heard(events)
        return events if is_asked_for else []

    pool.take_events = taken


def parameters(request: Request) -> dict[str, Any]:
    """What an agent says of a request."""
    lynx = (request.kv_transfer_params or {}).get("lynx")
    return lynx if isinstance(lynx, dict) else {}


def is_plain(request: Request) -> bool:
    """Whether a prompt's tokens alone say what its KV is, and its KV all that is wanted of it."""
    return not (
        request.sampling_params is None
        or request.prompt_token_ids is None
        or request.prompt_embeds is not None
        or request.mm_features
        or request.lora_request is not None
        or request.resumable
        or request.skip_reading_prefix_cache
    )


def geometry_of(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> Geometry:
    """The shape of the model's KV. Raises `OptionsError`, with a sentence, for what Lynx can't move."""
    parallel = vllm_config.parallel_config
    if parallel.tensor_parallel_size != 1 or parallel.pipeline_parallel_size != 1:
        raise OptionsError("Lynx moves the KV of one worker: run vLLM with tensor and pipeline parallel sizes of 1")
    if vllm_config.scheduler_config.async_scheduling:
        raise OptionsError("Lynx looks at each step before the next: run vLLM with --no-async-scheduling")
    groups = kv_cache_config.kv_cache_groups
    spec = groups[0].kv_cache_spec if len(groups) == 1 else None
    if not isinstance(spec, FullAttentionSpec) or spec.sliding_window is not None:
        raise OptionsError("Lynx moves KV of models whose layers are all alike, with full attention: this one isn't")
    if str(spec.dtype) != "torch.bfloat16":
        raise OptionsError(f"Lynx moves KV in BF16, and this one is {spec.dtype}: run vLLM with --dtype bfloat16")
    return Geometry(len(groups[0].layer_names), spec.num_kv_heads, spec.head_size)


def model_of(vllm_config: VllmConfig, options: Options, geometry: Geometry) -> Model:
    """What the agent is told of the model."""
    model = vllm_config.model_config
    served = model.served_model_name
    name = served[0] if isinstance(served, list) else served
    said = options.fingerprint
    mark = fingerprint.of_text(said) if said else fingerprint.of_folder(folder_of(model.model))
    return Model(name, mark, geometry, model.max_model_len, f"vLLM {installed()} with lynx-vllm {__version__}")


def folder_of(model: str) -> Path:
    """Where a model's files are: a folder by itself, or in Hugging Face's cache."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, local_files_only=True))
