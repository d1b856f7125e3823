"""What `pip install` gets, and whether its types are right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = "import setuptools.build_meta; print(setuptools.build_meta.build_wheel('..'))"
USE = "import lynx_vllm.engine; from lynx_vllm.api import engine_pb2; print(engine_pb2.Attach.DESCRIPTOR.full_name)"


def test_a_wheel_has_the_package_its_types_and_the_engine_apis_messages(tmp_path: Path) -> None:
    # What a build leaves behind is left in the copy.
    left_out = shutil.ignore_patterns("build", "api", "*.egg-info", "tests*")
    sources = shutil.copytree(ROOT / "integrations/vllm", tmp_path / "integrations/vllm", ignore=left_out)
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    wheel = sources.parent / run(BUILD, sources).splitlines()[-1]
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("connector.py", "scheduler.py", "proposer.py", "py.typed", "api/engine_pb2.py", "api/engine_pb2.pyi"):
        assert f"lynx_vllm/{name}" in names, names
    assert not any(name.startswith("test") for name in names), names
    path = os.pathsep.join([str(wheel), *sys.path])
    assert run(USE, tmp_path, {"PYTHONPATH": path}).strip() == "lynx.engine.v1.Attach"


def test_its_types_are_right(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "lynx_vllm"]
    done = subprocess.run(command, cwd=ROOT / "integrations/vllm", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run(code: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
