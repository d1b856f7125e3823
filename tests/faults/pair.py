#!/usr/bin/env python3
"""Two network namespaces and a cable between them: real TCP over a link that is as narrow as asked, and can be cut.

    pair.py up NAME RATE       NAME-a is 10.99.7.1 and NAME-b 10.99.7.2; RATE as tc(8) writes it, such as 100mbit, or none
    pair.py rate NAME RATE     another rate, in both directions
    pair.py cut NAME           the cable is out: nothing passes, and nobody is told
    pair.py mend NAME          it is in again
    pair.py down NAME          both namespaces are gone, whatever was left in them

Run a program in one with `ip netns exec NAME-a PROGRAM`. Needs root, ip and tc. Each command may be given again. The
host's own network is never touched: both ends of the cable are made inside the namespaces.
"""

from __future__ import annotations

import subprocess
import sys

USAGE = 64
ADDRESSES = {"a": "10.99.7.1", "b": "10.99.7.2"}
DEVICE = "cable"
# What a switch's port holds, and the least that tbf(8) needs for the largest packets of a usual network card.
BURST_S = 0.002
LEAST_BURST = 64 << 10
LATENCY = "20ms"
UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def up(name: str, rate: str) -> None:
    if rate != "none":
        burst(rate)
    down(name)
    for end in ADDRESSES:
        run("ip", "netns", "add", f"{name}-{end}")
        run("ip", "-n", f"{name}-{end}", "link", "set", "lo", "up")
    there = ["peer", "name", DEVICE, "netns", f"{name}-b"]
    run("ip", "link", "add", DEVICE, "netns", f"{name}-a", "type", "veth", *there)
    for end, address in ADDRESSES.items():
        run("ip", "-n", f"{name}-{end}", "address", "add", f"{address}/24", "dev", DEVICE)
    mend(name)
    shape(name, rate)


def shape(name: str, rate: str) -> None:
    for end in ADDRESSES:
        tc = ["tc", "-n", f"{name}-{end}", "qdisc"]
        if rate == "none":
            # Removing a limit that isn't there is no error to anybody.
            subprocess.run([*tc, "delete", "dev", DEVICE, "root"], capture_output=True, check=False)
        else:
            limit = ["rate", rate, "burst", str(burst(rate)), "latency", LATENCY]
            run(*tc, "replace", "dev", DEVICE, "root", "tbf", *limit)


def burst(rate: str) -> int:
    """What may pass at once when the link was idle, in bytes."""
    for unit, bits in UNITS.items():
        if rate.endswith(unit):
            return max(LEAST_BURST, int(float(rate.removesuffix(unit)) * bits / 8 * BURST_S))
    raise ValueError(f"{rate!r} is no rate: write it as 100mbit or 1gbit, or none")


def cut(name: str) -> None:
    for end in ADDRESSES:
        run("ip", "-n", f"{name}-{end}", "link", "set", DEVICE, "down")


def mend(name: str) -> None:
    for end in ADDRESSES:
        run("ip", "-n", f"{name}-{end}", "link", "set", DEVICE, "up")


def down(name: str) -> None:
    for end in ADDRESSES:
        subprocess.run(["ip", "netns", "delete", f"{name}-{end}"], capture_output=True, check=False)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


COMMANDS = {"up": (up, 2), "rate": (shape, 2), "cut": (cut, 1), "mend": (mend, 1), "down": (down, 1)}


def main(arguments: list[str]) -> int:
    command, count = COMMANDS.get(arguments[0] if arguments else "", (None, 0))
    if command is None or len(arguments) != 1 + count:
        print(__doc__, file=sys.stderr)
        return USAGE
    try:
        command(*arguments[1:])
    except (RuntimeError, ValueError) as error:
        print(f"pair: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
