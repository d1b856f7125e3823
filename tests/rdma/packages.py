"""Debian's packages, fetched once and held against their sums, and unpacked."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

LIST = Path(__file__).resolve().parent / "packages.txt"
CACHE = Path(os.environ.get("LYNX_CACHE", Path.home() / ".cache" / "lynx")) / "rdma"
# A kernel's package is called by its release, the last number of which is another one after every update.
RELEASE = re.compile(r"(linux-image-\d+\.\d+\.)\d+(\+.*)")


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
    """The package's archive: the one that is named, or what Debian has put in its place, which apt-get holds against Debian's signature."""
    folder = work / package
    folder.mkdir()
    # apt-get drops its rights to fetch, and so has to be let in.
    work.chmod(0o755)
    folder.chmod(0o777)
    why = download(folder, f"{package}={version}")
    if why and os.geteuid() == 0:
        # A machine whose lists are older than the package, or that has none.
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        why = download(folder, f"{package}={version}")
    if why:
        why = download(folder, successor(package))
    archives = list(folder.glob("*.deb"))
    if why or len(archives) != 1:
        raise Missing(f"{package} {version} can't be fetched, nor what came after it: {why}. Run apt-get update.")
    (archive,) = archives
    if (found := fields(archive)) != [package, version]:
        print(f"  fetch     of {package} Debian has {' '.join(found)} now: taken instead", flush=True)
        return archive
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != expected:
        raise Missing(f"{package} {version} has the SHA-256 {found}, not {expected}: it isn't what {LIST.name} names.")
    return archive


def download(folder: Path, wanted: str) -> str:
    """Fetches an archive into the folder; what apt-get says where it doesn't."""
    command = ["apt-get", "download", "-qq", "-o", "Acquire::Retries=3", wanted]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return run.stderr.strip() or f"apt-get ended with {run.returncode}" if run.returncode else ""


def successor(package: str) -> str:
    """What the package is called whose version doesn't matter: of a kernel's the newest in its series that apt knows."""
    release = RELEASE.fullmatch(package)
    if not release:
        return package
    start, end = release.groups()
    run = subprocess.run(["apt-cache", "pkgnames", start], capture_output=True, text=True, check=True)
    middles = [name.removeprefix(start).removesuffix(end) for name in run.stdout.split() if name.endswith(end)]
    numbers = [int(middle) for middle in middles if middle.isdecimal()]
    return f"{start}{max(numbers)}{end}" if numbers else package


def fields(archive: Path) -> list[str]:
    """The archive's package and version."""
    command = ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", archive]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def list_modules(root: Path) -> None:
    """Has depmod write which kernel module needs which: the package leaves that to its installation."""
    subprocess.run(["depmod", "--basedir", root, kernel_version(root)], check=True)


def kernel_version(root: Path) -> str:
    (modules,) = (root / "lib/modules").iterdir()
    return modules.name
