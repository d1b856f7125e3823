"""Nodes with vLLM as their engine, and a vLLM by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from nodes import AGENT, DECODE, ENGINE, PREFILL, Node, Options, until
from pair import ADDRESSES

# A machine that compiles beside it took two minutes.
START_S = 600
MODEL = "smollm2"
WEIGHTS = "Smollm2 135M 8k Lc100K Mix1 Ep2"
DRAFTS = 24
STAGING_BLOCKS = 96
# Of vLLM's own KV, 128 tokens each: enough for what the tests ask at once.
BLOCKS = 80
CONTEXT = 2048
PORTS = {PREFILL: 18210, DECODE: 18220, "plain": 18230}
PACKAGE = Path(__file__).resolve().parents[2] / "integrations/vllm"


class Vllm:
    """One `vllm serve` in a network namespace."""

    def __init__(
        self, name: str, enter: list[str], environment: str, model: str, log: Path, more: list[str], path: list[Path]
    ) -> None:
        """`more` is what it is told besides, `path` where Python looks for modules first."""
        self.url = f"http://127.0.0.1:{PORTS[name]}"
        self.log = log
        command = [
            *[*enter, f"{environment}/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", model],
            *["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(PORTS[name])],
            *["--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--enforce-eager"],
            *["--max-num-batched-tokens", "512", "--max-num-seqs", "8", "--num-gpu-blocks-override", str(BLOCKS)],
            *["--no-enable-log-requests", "--disable-uvicorn-access-log"],
            *more,
        ]
        settings = {
            **{"OMP_NUM_THREADS": "1", "KMP_BLOCKTIME": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
            **{"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            **{"PYTHONDONTWRITEBYTECODE": "1", "VLLM_LOGGING_COLOR": "0"},
        }
        with log.open("ab") as output:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **settings},
                start_new_session=True,
            )

    def fetch(self, path: str) -> str:
        """Raises OSError."""
        with urllib.request.urlopen(self.url + path, timeout=10) as reply:
            return reply.read().decode()

    def metric(self, name: str) -> float:
        """The sum of one of vLLM's metrics over its labels. Raises OSError."""
        lines = [line.rsplit(" ", 1) for line in self.fetch("/metrics").splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value in lines if key.split("{")[0] == name)

    def is_well(self) -> bool:
        if self.child.poll() is not None:
            raise ChildProcessError(f"vLLM has ended by itself: {self.log} says why")
        try:
            self.fetch("/health")
        except OSError:
            return False
        return True

    def is_idle(self) -> bool:
        return self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") == 0

    def seconds(self) -> float:
        """What its processes' threads have computed so far, in seconds of one core."""
        total = 0
        for entry in Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                # The session.
                if int(fields[3]) == self.child.pid:
                    total += sum(int((task / "schedstat").read_text().split()[0]) for task in (entry / "task").iterdir())
            except (OSError, IndexError):
                continue
        return total / 1e9

    def said(self, pattern: str) -> list[tuple[str, ...]]:
        """What its log says of something, in order."""
        return [match.groups() for match in re.finditer(pattern, self.log.read_text(errors="replace"))]

    def stop(self) -> None:
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGTERM)
            try:
                self.child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                pass
        # Whatever of its session is left.
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()


class VllmNode(Node):
    """An agent, and vLLM as its engine."""

    def __init__(self, role: str, options: Options, environment: str, config: dict) -> None:
        super().__init__(role, options, config)
        self.environment_folder = environment
        # Whether vLLM's log tells of each copy, which takes time.
        self.diagnostics = True
        # Whether a decode node's has Lynx's scheduler, without which nothing is drafted.
        self.drafts = True
        # What else it is told, and where its modules are that can answer as a plain vLLM.
        self.more: list[str] = []
        self.toggled: Path | None = None
        self.vllm: Vllm | None = None
        # JSON is YAML.
        written = json.loads(self.config_file.read_text())
        written["engine"]["http"] = f"http://127.0.0.1:{PORTS[role]}"
        self.config_file.write_text(json.dumps(written))

    def start(self, what: str) -> None:
        if what == AGENT:
            super().start(what)
            return
        extra = {
            **{"socket": str(self.socket), "shared_directory": str(self.shared), "staging_blocks": STAGING_BLOCKS},
            **{"weights": WEIGHTS, "diagnostics": self.diagnostics},
        }
        transfer = {
            "kv_connector": "LynxConnector",
            "kv_connector_module_path": "lynx_toggled" if self.toggled else "lynx_vllm.connector",
            "kv_role": "kv_producer" if self.role == PREFILL else "kv_consumer",
            **{"kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra},
        }
        more = [*self.more, "--kv-transfer-config", json.dumps(transfer)]
        if self.role == DECODE and self.drafts:
            proposer = "lynx_vllm.proposer.LynxProposer"
            speculative = {"method": "custom_class", "model": proposer, "num_speculative_tokens": DRAFTS}
            scheduler = "lynx_toggled.ToggledScheduler" if self.toggled else "lynx_vllm.scheduler.LynxScheduler"
            more += ["--scheduler-cls", scheduler]
            more += ["--speculative-config", json.dumps(speculative)]
        log = self.options.folder / f"{self.role}-{ENGINE}.log"
        path = [PACKAGE, self.toggled] if self.toggled else [PACKAGE]
        self.vllm = Vllm(self.role, self.enter, self.environment_folder, self.options.model, log, more, path)

    def stop(self) -> None:
        super().stop()
        if self.vllm is not None:
            self.vllm.stop()


class Nodes:
    """A prefill node, a decode node, and beside that one a vLLM that knows nothing of Lynx."""

    def __init__(self, options: Options, environment: str) -> None:
        here = ADDRESSES["a"]
        listen = {
            **{"http": "0.0.0.0:8080", "drain": "127.0.0.1:8081"},
            **{"peer": f"{here}:7400", "data": f"{here}:7401"},
        }
        self.prefill = VllmNode(PREFILL, options, environment, {"listen": listen})
        listen = {"http": "127.0.0.1:8090", "drain": "127.0.0.1:8091"}
        self.decode = VllmNode(DECODE, options, environment, {"listen": listen, "peers": [f"{here}:7400"]})
        self.both = [self.prefill, self.decode]
        self.plain: Vllm | None = None
        self.options = options
        self.environment = environment

    def start(self) -> float:
        """Starts all of them at once, and waits until they work; how long it took."""
        # Its log probabilities are logits, by which ties are told. That changes no answer.
        more = ["--logprobs-mode", "raw_logits"]
        log = self.options.folder / "plain.log"
        self.plain = Vllm("plain", self.decode.enter, self.environment, self.options.model, log, more, [])
        for node in self.both:
            node.start(ENGINE)
            node.start(AGENT)
        took = until("vLLM by itself works", self.plain.is_well, START_S)
        return took + until("both nodes work and are linked", self.are_ready, START_S)

    def are_ready(self) -> bool:
        for node in self.both:
            # Not for its own sake, since the agent asks it: one that has ended is noticed here.
            if node.vllm is not None and node.vllm.child.poll() is not None:
                raise ChildProcessError(f"vLLM has ended by itself: {node.vllm.log} says why")
        return all(node.is_ready() for node in self.both) and self.decode.is_linked()

    def is_quiet(self) -> bool:
        """Whether nothing is in flight anywhere."""
        return all(node.metric("lynx_in_flight") == 0 for node in self.both) and self.decode.vllm.is_idle()

    def stop(self) -> None:
        for node in self.both:
            node.stop()
        if self.plain is not None:
            self.plain.stop()
