"""What engines with the same weights have in common."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

#: How much is read at either end of a file of weights.
SAMPLE = 1 << 20
#: Fields of a configuration that change no KV.
IGNORED = ("_name_or_path", "transformers_version")


class FingerprintError(RuntimeError):
    """The model's files tell nothing."""


def of_folder(folder: Path) -> bytes:
    """A hash of a model's configuration, and of its weights' names, sizes, headers and ends.

    Not of all of their bytes, which would take minutes for large ones: files that are alike in all of this are one model's,
    unless somebody means them not to be.
    """
    hasher = hashlib.sha256(b"lynx-vllm 1")
    try:
        config = json.loads((folder / "config.json").read_text())
        weights = sorted(folder.glob("*.safetensors"))
        if not weights:
            raise FingerprintError(f"there are no weights in {folder}: give kv_connector_extra_config a fingerprint")
        for name in IGNORED:
            config.pop(name, None)
        hasher.update(json.dumps(config, sort_keys=True).encode())
        for path in weights:
            size = path.stat().st_size
            hasher.update(f"\n{path.name} {size}\n".encode())
            with path.open("rb") as file:
                hasher.update(file.read(SAMPLE))
                file.seek(max(0, size - SAMPLE))
                hasher.update(file.read(SAMPLE))
    except (OSError, json.JSONDecodeError) as error:
        why = f"the model's files in {folder} can't be read ({error}): give kv_connector_extra_config a fingerprint"
        raise FingerprintError(why) from None
    return hasher.digest()


def of_text(text: str) -> bytes:
    """A hash of what somebody says that it is."""
    return hashlib.sha256(text.encode()).digest()
