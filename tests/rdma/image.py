"""The virtual machine's file system: kernel modules, a shell, libibverbs with its driver, and what is to be run."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from pathlib import Path

from packages import kernel_version

HERE = Path(__file__).resolve().parent
LIBRARIES = "usr/lib/x86_64-linux-gnu"
DRIVER = f"{LIBRARIES}/libibverbs/librxe-rdmav34.so"

# What is loaded, each after what it needs.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "veth", "ib_uverbs", "rdma_ucm", "rdma_rxe"]
# Kernel modules that others find by an algorithm's name, and so are no dependency of theirs.
BY_NAME = ["crc32_generic", "crc32c_generic"]

APPLETS = (
    "sh mount umount cat ls insmod sleep echo poweroff grep sed head tail kill dmesg mkdir dd timeout chmod su id seq ln rm env"
).split()


def build(packages: Path, programs: list[Path], work: Path) -> Path:
    """Writes the initial RAM file system, with the libraries of these programs, which aren't in it."""
    root = work / "root"
    for folder in ["bin", "dev", "proc", "sys", "run", "test", "etc/libibverbs.d", "modules", LIBRARIES, "lib64"]:
        (root / folder).mkdir(parents=True)
    (root / "tmp").mkdir()
    shutil.copy(packages / "bin/busybox", root / "bin/busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    modules(packages, root / "modules")
    (root / DRIVER).parent.mkdir()
    shutil.copy(packages / DRIVER, root / DRIVER)
    (root / "etc/libibverbs.d/rxe.driver").write_text("driver rxe\n")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    for name in ["ip", "rdma"]:
        shutil.copy(tool(name), root / "bin" / name)
    libraries(packages, programs, root)
    shutil.copy(HERE / "init", root / "init")
    return packed(root, work / "initrd.gz")


def tool(name: str) -> Path:
    """This machine's program; who isn't root may not have its folder in PATH."""
    return Path(shutil.which(name) or f"/usr/sbin/{name}").resolve()


def modules(packages: Path, into: Path) -> None:
    """Copies the modules, numbered in the order in which they can be loaded."""
    folder = packages / "lib/modules" / kernel_version(packages)
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[name_of(path)] = (path, others.split())
    order: dict[str, str] = {}

    def add(name: str) -> None:
        # What isn't a module is in the kernel.
        if name not in needs or name in order:
            return
        path, others = needs[name]
        for other in others:
            add(name_of(other))
        order[name] = path

    for name in [*BY_NAME, *MODULES]:
        add(name)
    for number, (name, path) in enumerate(order.items()):
        data = (folder / path).read_bytes()
        if path.endswith(".xz"):
            data = lzma.decompress(data)
        (into / f"{number:02}-{name}.ko").write_bytes(data)


def name_of(path: str) -> str:
    return re.sub(r"\.ko(\.xz)?$", "", path.rsplit("/", 1)[-1]).replace("-", "_")


def libraries(packages: Path, programs: list[Path], root: Path) -> None:
    """Copies what the programs are linked with: the packages' where they have it, or this machine's."""
    places = [packages / LIBRARIES, packages / "lib/x86_64-linux-gnu"]
    path = ":".join(map(str, places))
    verbs = packages / LIBRARIES / "libibverbs.so.1"
    wanted = {verbs}
    for program in [*programs, root / "bin/ip", root / "bin/rdma", root / DRIVER, verbs]:
        run = subprocess.run(
            ["ldd", program], env={"LD_LIBRARY_PATH": path, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
        )
        wanted |= {Path(found) for found in re.findall(r"(/\S+)", run.stdout) if ".so" in found}
    for library in wanted:
        loader = library.name.startswith("ld-linux")
        shutil.copy(library.resolve(), root / ("lib64" if loader else LIBRARIES) / library.name)


def packed(root: Path, archive: Path) -> Path:
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    run = subprocess.run(
        ["cpio", "--create", "--format=newc", "--quiet", "--owner=0:0"],
        cwd=root,
        input="\n".join(names).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    archive.write_bytes(gzip.compress(run.stdout, compresslevel=1))
    return archive
