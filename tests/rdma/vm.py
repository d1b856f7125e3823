#!/usr/bin/env python3
"""Runs programs in a virtual machine whose kernel has Soft-RoCE: RDMA on any machine, without a card.

    vm.py [--seconds N] [--only TEXT] [--console]

    --seconds N   the machine is ended after so long, and its console shown (default 1200)
    --only TEXT   only the steps whose names contain TEXT
    --console     show the console also where all went well

QEMU emulates the processor (TCG), so this needs no rights, and is slow: it says what is right, never how fast. The programs are built
here, the steps run them, and the result is how many steps failed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True

import image
import packages

# What init ends with before anything runs.
PROBLEMS = {90: "a kernel module can't be loaded", 91: "Soft-RoCE can't be set up", 92: "the tests' folder can't be mounted"}
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# How long an instruction takes by the machine's clock: a nanosecond. So its seconds don't depend on how busy this machine is, and no peer is
# taken for dead because of that. While it has nothing to do they are real ones.
ICOUNT = "shift=0"
STEP_SECONDS = 300
CONSOLE_LINES = 120


@dataclass(frozen=True)
class Step:
    """A program that is run, as root or as nobody with 64 KiB of lockable memory."""

    name: str
    command: str
    nobody: bool = False


# What is built, by the name that the steps know it by: the folder of its package, and which of that one's programs.
PROGRAMS = {
    "agents": ("cli", "cards"),
    "device": ("sidecar/verbs", "device"),
    "links": ("sidecar/transport", "cards"),
    "lynx": ("cli", "lynx"),
}

# The tests among them, and with them the programs that they start. Of the whole workspace: then dependencies have the features that they have
# in `make test`, and what that has compiled will do.
BUILD = ["cargo", "test", "--no-run", "--workspace", "--features=lynx/rdma", "--test=cards", "--test=device"]

STEPS = [
    Step("verbs, on a device", "device --ignored --test-threads 1 --skip unprivileged"),
    Step("whole links, on cards", "links --test-threads 1"),
    Step("agents, on cards", "agents --test-threads 1"),
    Step("doctor rdma, and a probe", "sh /test/doctor"),
    Step("verbs, without rights", "device --ignored --test-threads 1 unprivileged", nobody=True),
    Step("a link, without rights", "links --ignored --test-threads 1 unprivileged", nobody=True),
    Step("agents, without rights", "agents --ignored --test-threads 1 unprivileged", nobody=True),
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Programs in a virtual machine with Soft-RoCE.")
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--only", default="")
    parser.add_argument("--console", action="store_true")
    options = parser.parse_args()
    steps = [step for step in STEPS if options.only in step.name]
    try:
        root = packages.unpacked()
    except packages.Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="lynx-rdma-") as folder:
        work = Path(folder)
        share = work / "share"
        (share / "bin").mkdir(parents=True)
        built = programs(share / "bin")
        model(share / "cache" / "models")
        (share / "run").write_text(script(steps, built["lynx"]))
        shutil.copy(HERE / "doctor", share)
        initrd = image.build(root, [share / "bin" / name for name in PROGRAMS], work)
        return boot(root, initrd, share, options)


def programs(into: Path) -> dict[str, str]:
    """Builds all of them, and puts them there without what only a debugger reads; where cargo has made each."""
    command = [*BUILD, "--quiet", "--message-format=json"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in run.stdout.splitlines()]
    built = {}
    for message in messages:
        if message.get("executable"):
            package = Path(message["manifest_path"]).parent.relative_to(ROOT)
            built[str(package), message["target"]["name"]] = message["executable"]
    for name, program in PROGRAMS.items():
        subprocess.run(["strip", "--strip-debug", "-o", into / name, built[program]], check=True)
    return {name: built[program] for name, program in PROGRAMS.items()}


def model(into: Path) -> None:
    """Puts the tests' model there."""
    into.mkdir(parents=True)
    (weights,) = (packages.CACHE.parent / "models").glob("*.gguf")
    shutil.copy(weights, into)


def script(steps: list[Step], lynx: str) -> str:
    """What the guest's shell runs: every step, also after one that failed; its code is how many did."""
    # Tests of the command know it by where cargo has made it.
    lines = ["failed=0", "ulimit -l unlimited", f"mkdir -p {Path(lynx).parent}", f"ln -s /test/bin/lynx {lynx}"]
    for step in steps:
        command = f"timeout {STEP_SECONDS} {step.command}"
        if step.nobody:
            command = f"(ulimit -l 64; su -s /bin/sh nobody -c {shlex.quote(command)})"
        lines += [
            f"echo {shlex.quote(f'@step {step.name}')}",
            f'{command} || {{ echo "@failed $?"; failed=$((failed + 1)); }}',
        ]
    return "\n".join([*lines, "echo @end", "exit $failed", ""])


def boot(root: Path, initrd: Path, share: Path, options: argparse.Namespace) -> int:
    """Runs the machine to its end, prints what it ran, and returns what it returned."""
    kernel = root / "boot" / f"vmlinuz-{packages.kernel_version(root)}"
    command = [
        *("qemu-system-x86_64", "-accel", "tcg", "-icount", ICOUNT, "-cpu", "max", "-M", "q35", "-m", "1500"),
        *("-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-device", "isa-debug-exit,iobase=0xf4,iosize=0x01"),
        *("-fsdev", f"local,id=test,path={share},security_model=none", "-device", "virtio-9p-pci,fsdev=test,mount_tag=test"),
        *("-kernel", str(kernel), "-initrd", str(initrd)),
        *("-append", "console=ttyS0 quiet panic=-1 mitigations=off edd=off"),
    ]
    print(f"  rdma      Linux {packages.kernel_version(root)}", flush=True)
    begun = time.monotonic()
    console: list[str] = []
    with subprocess.Popen(
        ["timeout", "--signal=KILL", str(options.seconds), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as machine:
        for line in machine.stdout or []:
            console.append(line.rstrip())
            tell(console[-1])
    seconds = time.monotonic() - begun
    ended = "@end" in console
    # isa-debug-exit ends QEMU with twice the code and one.
    code = machine.returncode >> 1 if machine.returncode & 1 else machine.returncode
    if code or not ended or options.console:
        print("\n".join(["  console", *console[-CONSOLE_LINES:]]))
    if seconds >= options.seconds:
        print(f"  rdma      the machine had no end after {options.seconds} s")
        return 1
    if not ended:
        print(f"  rdma      the machine ended early: {PROBLEMS.get(code, 'its console says why')}")
        return code or 1
    print(f"  rdma      {'passed' if code == 0 else f'{code} steps failed'}, in {seconds:.0f} s")
    return code


def tell(line: str) -> None:
    """Prints a step when it begins, and each of its tests when it is over."""
    if line.startswith("@step "):
        print(f"  rdma      {line.removeprefix('@step ')}", flush=True)
    elif line.startswith(("test ", "@failed")):
        print(f"              {line.removeprefix('test ')}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
