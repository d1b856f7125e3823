"""Debian's packages, fetched once and held against their sums, and unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

LIST = Path(__file__).resolve().parent / "packages.txt"
CACHE = Path(os.environ.get("LYNX_CACHE", Path.home() / ".cache" / "lynx")) / "rdma"


class Missing(Exception):
    """Something that the virtual machine is made of can't be had; the text says what to do."""


def unpacked() -> Path:
    """The folder with everything that the packages have, complete."""
    text = LIST.read_text()
    folder = CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".fetch.", dir=CACHE))
    try:
        for line in text.splitlines():
            if line and not line.startswith("#"):
                package, version, expected = line.split()
                print(f"  fetch     {package} {version}", flush=True)
                archive = fetched(work, package, version, expected)
                subprocess.run(["dpkg-deb", "--extract", archive, work / "root"], check=True)
        list_modules(work / "root")
        try:
            (work / "root").rename(folder)
        except OSError:
            # Another one was faster: its folder is as good.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work)
    return folder


def fetched(work: Path, package: str, version: str, expected: str) -> Path:
    """The package's archive."""
    folder = work / package
    folder.mkdir()
    # apt-get drops its rights to fetch, and so has to be let in.
    work.chmod(0o755)
    folder.chmod(0o777)
    command = ["apt-get", "download", "-qq", f"{package}={version}"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode and os.geteuid() == 0:
        # A machine whose lists are older than the package, or that has none.
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.deb"))
    if run.returncode or len(archives) != 1:
        raise Missing(
            f"{package} {version} can't be fetched: {run.stderr.strip()}. Run apt-get update; where Debian has a newer version, "
            f"write that and its SHA-256 into {LIST.name}."
        )
    found = hashlib.sha256(archives[0].read_bytes()).hexdigest()
    if found != expected:
        raise Missing(f"{package} {version} has the SHA-256 {found}, not {expected}: it isn't what {LIST.name} names.")
    return archives[0]


def list_modules(root: Path) -> None:
    """Has depmod write which kernel module needs which: the package leaves that to its installation."""
    subprocess.run(["depmod", "--basedir", root, kernel_version(root)], check=True)


def kernel_version(root: Path) -> str:
    (modules,) = (root / "lib/modules").iterdir()
    return modules.name
