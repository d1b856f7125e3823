"""vLLM's scheduler, for requests that draft: `--scheduler-cls lynx_vllm.scheduler.LynxScheduler`.

It reaches into fields that vLLM promises nobody, in `__init__` and in the overridden methods, each a few lines around
what vLLM does; `version` pins the release. All decisions are in `receiving` and `drafting`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import pinned as pinned  # The check comes first.

from vllm.v1.core.sched.scheduler import Scheduler

from .connector import LynxConnector
from .drafting import Drafts
from .options import OptionsError, Role
from .pace import Pace
from .shortcuts import propose_nothing

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request


#: How long a scheduler that has nothing to do waits for the agent's word, in seconds. vLLM would look for it a thousand times a
#: second, each time with a word to its worker.
PAUSE = 0.005


class LynxScheduler(Scheduler):
    """Drafts on the first bits of a prompt's KV, and verifies with all of them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        connector = self.connector
        if not isinstance(connector, LynxConnector):
            raise OptionsError("LynxScheduler works with LynxConnector: name it in --kv-transfer-config")
        self.lynx = connector.scheduler
        self._pace = Pace()
        #: When the step under way began, and how many tokens of each request it computes.
        self._began = 0
        self._rows: dict[str, int] = {}
        self._had_nothing = False
        if self.num_spec_tokens:
            propose_nothing()
        if connector.options.role is Role.DECODE and self.num_spec_tokens:
            self.lynx.can_draft(Drafts(self.num_spec_tokens), self.max_model_len, self.hash_block_size)
        self._allocate = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self._allocate_unhashed

    def _allocate_unhashed(self, request: Request, *arguments: Any, **named: Any) -> KVCacheBlocks | None:
        """Blocks of a request whose KV is not exact stay out of the prefix cache."""
        if self.lynx.receiving.is_tainted(request.request_id):
            named["delay_cache_blocks"] = True
        return self._allocate(request, *arguments, **named)

    def schedule(self, *arguments: Any, **named: Any) -> SchedulerOutput:
        """Looks at what has come of any request's KV, and then does what vLLM does."""
        if self.lynx.engine.wants_empty_cache:
            self.lynx.engine.wants_empty_cache = False
            self.reset_prefix_cache(reset_running_requests=True)
        if self._had_nothing and not self.running:
            self.lynx.engine.word.wait(PAUSE)
        self.lynx.engine.word.clear()
        self.lynx.receiving.before_step()
        output = super().schedule(*arguments, **named)
        self._began = time.time_ns()
        self._rows = output.num_scheduled_tokens
        self._had_nothing = not self._rows
        self._pace.began(list(output.num_scheduled_tokens.values()), self._began)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """What vLLM does, after a look at the clock."""
        self.lynx.engine.token_time_ns = self._pace.ended(time.time_ns())
        return super().update_from_output(scheduler_output, model_runner_output)

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        """Tokens of a draft are told to nobody: vLLM makes no output of a request that got none."""
        request_id = request.request_id
        if not self.lynx.is_receiving(request_id):
            return super()._update_request_with_output(request, new_token_ids, is_stale)
        update = super()._update_request_with_output
        drafts = self.lynx.receiving.drafts
        if drafts is None:
            told, has_stopped = update(request, new_token_ids, is_stale)
        else:
            told, has_stopped, verified = drafts.took(
                request_id, new_token_ids, lambda: update(request, new_token_ids, is_stale)
            )
            if verified is not None:
                self.lynx.receiving.verified(request_id, verified, self._began)
                if self.lynx.options.diagnostics:
                    blocks = len(self.kv_cache_manager.get_block_ids(request_id)[0])
                    self.lynx.log_verified(request_id, verified, self._rows.get(request_id, 0), blocks)
        if told:
            self.lynx.engine.incomings.tell_tokens(request_id, told, self._began, time.time_ns())
        return told, has_stopped

    def _preempt_request(self, request: Request, *arguments: Any, **named: Any) -> None:
        """What vLLM does; and a draft is given up."""
        super()._preempt_request(request, *arguments, **named)
        if self.lynx.is_receiving(request.request_id):
            self.lynx.receiving.preempted(request.request_id)
