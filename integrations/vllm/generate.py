#!/usr/bin/env python3
"""generate.py [FOLDER]: the engine API's messages for Python, from proto/, into the package `lynx_vllm.api` in FOLDER.

They are made when the package is built or tested, and never committed: there is one text of the contract. Without FOLDER
they come beside the package's sources.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
CONTRACT = HERE.parents[1] / "proto/lynx/engine/v1/engine.proto"


def generate(folder: Path) -> None:
    """Writes `lynx_vllm/api` into the folder."""
    package = Path("lynx_vllm/api")
    with tempfile.TemporaryDirectory() as work:
        # Under the package's own path, so that no package named `lynx` is claimed.
        copy = Path(work, package, "engine.proto")
        copy.parent.mkdir(parents=True)
        shutil.copy(CONTRACT, copy)
        folder.mkdir(parents=True, exist_ok=True)
        arguments = ["protoc", f"-I{work}", f"--python_out={folder}", f"--pyi_out={folder}", str(copy)]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"protoc can't read {CONTRACT}: it says why above")
    (folder / package / "__init__.py").write_text('"""The engine API\'s messages, generated."""\n')


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
