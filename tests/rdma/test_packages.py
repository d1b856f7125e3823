#!/usr/bin/env python3
"""Tests of what is fetched: `tests/rdma/test_packages.py`, against an archive of some small packages in place of Debian's."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True

import packages

KERNEL = "linux-image-6.12.117+deb12-amd64"
NEWER = "linux-image-6.12.120+deb12-amd64"
# Hands out what lies in the pool under the name that is asked for, and knows no other.
APT_GET = """#!/bin/sh
[ "$1" = download ] || exit 0
for wanted; do :; done
cp "{pool}/$wanted" "$wanted.deb" 2>/dev/null || {{ echo "E: $wanted was not found" >&2; exit 100; }}
"""
APT_CACHE = """#!/bin/sh
echo linux-image-6.12.99+deb12-amd64 {newer} linux-image-6.12.121+deb12-cloud-amd64 linux-image-6.12.122+deb12-amd64-dbg
"""


class Fetching(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lynx-packages-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.pool = self.folder / "pool"
        self.list = self.folder / "packages.txt"
        programs = {
            "apt-get": APT_GET.format(pool=self.pool),
            "apt-cache": APT_CACHE.format(newer=NEWER),
            "depmod": "#!/bin/sh\n",
        }
        for folder in (self.pool, self.folder / "bin", self.folder / "cache"):
            folder.mkdir()
        for name, script in programs.items():
            (self.folder / "bin" / name).write_text(script)
            (self.folder / "bin" / name).chmod(0o755)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        for patch in (
            mock.patch.dict(os.environ, {"PATH": path}),
            mock.patch.multiple(packages, LIST=self.list, CACHE=self.folder / "cache"),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def has(self, package: str, version: str, kernel: str, wanted: str) -> str:
        """Puts a package with one kernel's folder into the pool, for whoever asks for this; its sum."""
        root = self.folder / "package"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "lib" / "modules" / kernel).mkdir(parents=True)
        about = f"Package: {package}\nVersion: {version}\nArchitecture: all\nMaintainer: a test\nDescription: none\n"
        (root / "DEBIAN" / "control").write_text(about)
        archive = self.pool / wanted
        subprocess.run(["dpkg-deb", "--build", root, archive], stdout=subprocess.DEVNULL, check=True)
        shutil.rmtree(root)
        return hashlib.sha256(archive.read_bytes()).hexdigest()

    def kernel(self) -> str:
        """Which kernel is unpacked, by a list of this one alone."""
        with contextlib.redirect_stdout(io.StringIO()) as self.said:
            return packages.kernel_version(packages.unpacked())

    def test_the_version_that_is_named_is_taken_and_kept(self) -> None:
        total = self.has(KERNEL, "6.12.117-1", "named", f"{KERNEL}=6.12.117-1")
        self.has(NEWER, "6.12.120-1", "newer", NEWER)
        self.list.write_text(f"# A comment.\n{KERNEL} 6.12.117-1 {total}\n")
        self.assertEqual(self.kernel(), "named")
        self.assertNotIn("taken instead", self.said.getvalue())
        for archive in self.pool.iterdir():
            archive.unlink()
        self.assertEqual(self.kernel(), "named")

    def test_a_kernel_that_debian_has_replaced_is_the_newest_of_its_series(self) -> None:
        self.has(NEWER, "6.12.120-1", "newer", NEWER)
        self.list.write_text(f"{KERNEL} 6.12.117-1 {'0' * 64}\n")
        self.assertEqual(self.kernel(), "newer")
        self.assertIn(f"of {KERNEL} Debian has {NEWER} 6.12.120-1 now: taken instead", self.said.getvalue())

    def test_another_package_that_debian_has_replaced_is_its_newer_version(self) -> None:
        self.has("busybox-static", "1:2", "busy", "busybox-static")
        self.list.write_text(f"busybox-static 1:1 {'0' * 64}\n")
        self.assertEqual(self.kernel(), "busy")
        self.assertIn("of busybox-static Debian has busybox-static 1:2 now", self.said.getvalue())

    def test_the_version_that_is_named_has_its_sum_also_where_it_is_found_as_what_came_after_it(self) -> None:
        self.list.write_text(f"busybox-static 1:1 {'0' * 64}\n")
        for wanted in ("busybox-static=1:1", "busybox-static"):
            self.has("busybox-static", "1:1", "other", wanted)
            with self.assertRaisesRegex(packages.Missing, "it isn't what packages.txt names"):
                self.kernel()
            (self.pool / wanted).unlink()

    def test_where_nothing_can_be_had_it_is_said_and_nothing_is_kept(self) -> None:
        self.list.write_text(f"{KERNEL} 6.12.117-1 {'0' * 64}\n")
        with self.assertRaisesRegex(packages.Missing, f"nor what came after it: E: {re.escape(NEWER)} was not found"):
            self.kernel()
        self.assertEqual(list((self.folder / "cache").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
