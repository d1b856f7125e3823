#!/usr/bin/env python3
"""Two vLLM servers with Lynx between them, on a narrow link, beside one that knows nothing of Lynx.

    vllm_test.py [--only TEXT] [--keep]

    --only TEXT only the scenarios whose names contain TEXT, or one of TEXT|TEXT; --list names them
    --keep      leaves the logs, and says where

Needs root, ip, tc, the `lynx` program, and what scripts/vllm-env makes: `make test-vllm` sees to it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/faults"))

import promises
from nodes import Unmet
from place import Place, enter
from servers import Nodes

# 7.5 MB/s: 1,000 tokens of this model's KV take three seconds, in which even a busy machine drafts.
RATE = "60mbit"
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
    return inside(options) if options.inside else enter(__file__, RATE, options.keep)


def inside(options: argparse.Namespace) -> int:
    place = Place.parse(options.inside)
    nodes = Nodes(place.options("debug", place.folder), place.environment)
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
        for log in sorted(place.folder.glob("*.log")):
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
