#!/usr/bin/env python3
"""Two vLLM servers with Lynx between them, on a narrow link, beside one that knows nothing of Lynx.

    vllm_test.py [--only TEXT] [--keep]

    --only TEXT only the scenarios whose names contain TEXT, or one of TEXT|TEXT; --list names them
    --keep      leaves the logs, and says where

Needs root, ip, tc, the `lynx` program, and what scripts/vllm-env makes: `make test-vllm` sees to it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/faults"))

import pair
import promises
from nodes import Options, Unmet
from servers import Nodes

# 7.5 MB/s: 1,000 tokens of this model's KV take three seconds, in which even a busy machine drafts.
RATE = "60mbit"
TERMINATED = 143
LOG_LINES = 25


def main() -> int:
    parser = argparse.ArgumentParser(description="Two vLLM servers with Lynx between them.")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print("\n".join(promises.ALL))
        return 0
    return inside(options) if options.inside else outside(options)


def outside(options: argparse.Namespace) -> int:
    """Makes the namespaces and enters one of them, where the client is; leaves nothing."""
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
        pair.up(name, RATE)
        enter = ["ip", "netns", "exec", f"{name}-b", sys.executable, __file__, *sys.argv[1:]]
        return subprocess.run([*enter, "--inside", f"{name} {folder} {environment} {model}"], check=False).returncode
    finally:
        pair.down(name)
        if options.keep:
            print(f"  logs      {folder}")
        else:
            shutil.rmtree(folder)


def inside(options: argparse.Namespace) -> int:
    name, folder, environment, model = options.inside.split()
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/lynx"
    nodes = Nodes(Options(name, str(program), model, Path(folder)), environment)
    failures, begun = 0, time.monotonic()
    try:
        print(f"  {nodes.start():6.1f} s  three vLLMs and two agents work", flush=True)
        world = promises.World(nodes)
        for title, scenario in promises.ALL.items():
            if any(part in title for part in options.only.split("|")):
                failures += not passes(world, title, scenario)
    except (Unmet, OSError) as error:
        failures += 1
        print(f"  FAILED    {error}")
    finally:
        nodes.stop()
    if failures:
        for log in sorted(Path(folder).glob("*.log")):
            print(f"--- {log.name}")
            print("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
    print(f"  vllm      {time.monotonic() - begun:.0f} s, {failures} failed")
    return 1 if failures else 0


def passes(world: promises.World, title: str, scenario: promises.Scenario) -> bool:
    begun = time.monotonic()
    try:
        said, failure = scenario(world), ""
    except (Unmet, OSError) as error:
        said, failure = "", str(error)
    print(f"  {time.monotonic() - begun:6.1f} s  {title}: {failure and 'FAILED: ' + failure or said}", flush=True)
    return not failure


if __name__ == "__main__":
    sys.exit(main())
