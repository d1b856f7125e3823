"""Where servers and their client run: a namespace of their own, and a folder in memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pair
from nodes import Options

ROOT = Path(__file__).resolve().parents[2]
TERMINATED = 143


@dataclass(frozen=True)
class Place:
    """What a program finds that was entered."""

    #: The pair of namespaces; it is in the second one.
    pair: str
    folder: Path
    #: vLLM's.
    environment: str
    model: str

    @classmethod
    def parse(cls, text: str) -> Place:
        name, folder, environment, model = text.split()
        return cls(name, Path(folder), environment, model)

    def options(self, profile: str, folder: Path) -> Options:
        """For nodes with the agent of this build."""
        program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / profile / "lynx"
        return Options(self.pair, str(program), self.model, folder)


def enter(script: str, rate: str, keep: bool) -> int:
    """Makes the namespaces, with a cable of this rate, and runs this same program in one of them; leaves nothing, or the logs."""
    made = subprocess.run([str(ROOT / "scripts/vllm-env")], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        print(made.stderr, file=sys.stderr)
        return 1
    environment, model = made.stdout.split()[-2:]
    # Whoever ends this wants nothing left of it either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    name = f"lxv{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="lynx-vllm-", dir="/dev/shm"))
    try:
        pair.up(name, rate)
        command = ["ip", "netns", "exec", f"{name}-b", sys.executable, script, *sys.argv[1:]]
        return subprocess.run([*command, "--inside", f"{name} {folder} {environment} {model}"], check=False).returncode
    finally:
        pair.down(name)
        if keep:
            print(f"  logs      {folder}")
        else:
            shutil.rmtree(folder)
