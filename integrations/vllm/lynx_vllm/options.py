"""What the connector is told: in `--kv-transfer-config`, and by the operator in the environment of the pod."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class OptionsError(ValueError):
    """The configuration is none."""


class Role(enum.Enum):
    """What an engine is for."""

    PREFILL = "prefill"
    DECODE = "decode"


#: vLLM's words for it. Where one command serves both pools, it says kv_both, and the environment which pool this is.
ROLES = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}
#: What the environment may say in place of `kv_connector_extra_config`.
VARIABLES = {"socket": "LYNX_ENGINE_SOCKET", "shared_directory": "LYNX_SHARED_DIRECTORY"}
ROLE_VARIABLE = "LYNX_ROLE"


@dataclass(frozen=True)
class Options:
    """`kv_role` and `kv_connector_extra_config`, checked."""

    role: Role
    #: The agent's socket: `engine.socket` of its configuration.
    socket: Path
    #: Where both map the staging pool: `engine.sharedDirectory`.
    shared_directory: Path
    #: How many blocks of 64 tokens the pool has.
    staging_blocks: int
    #: The name of the weights, by which the agent finds their anchor profile. Empty: the served name.
    weights: str = ""
    #: What engines with the same weights have in common. Empty: made of the model's files.
    fingerprint: str = ""
    #: How long a request waits for KV before it is computed here, in seconds. The agent's own deadline is shorter.
    patience: float = 300.0
    #: Whether the log tells of each copy, with its time and a checksum, and of each verification. For tests: a checksum
    #: costs more than the copy.
    diagnostics: bool = False

    @classmethod
    def parse(cls, kv_role: str | None, extra: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
        """Raises `OptionsError`, with a sentence, for what can't be used."""
        known = {
            "socket": Path,
            "shared_directory": Path,
            "staging_blocks": int,
            "weights": str,
            "fingerprint": str,
            "patience": float,
            "diagnostics": bool,
        }
        for name in extra:
            if name not in known:
                raise OptionsError(f"kv_connector_extra_config has no {name!r}: it takes {', '.join(known)}")
        given = {name: environment[variable] for name, variable in VARIABLES.items() if variable in environment}
        given |= extra
        for name in ("socket", "shared_directory", "staging_blocks"):
            if name not in given:
                raise OptionsError(f"kv_connector_extra_config lacks {name!r}: docs/vllm.md says what it is")
        try:
            fields = {name: known[name](value) for name, value in given.items()}
        except (TypeError, ValueError) as error:
            raise OptionsError(f"kv_connector_extra_config can't be read: {error}") from None
        options = cls(role=role_of(kv_role, environment), **fields)
        if options.staging_blocks < 1:
            raise OptionsError(f"staging_blocks is {options.staging_blocks}: give at least one")
        if options.patience <= 0:
            raise OptionsError(f"patience is {options.patience} s: give a time to wait")
        return options


def role_of(kv_role: str | None, environment: Mapping[str, str]) -> Role:
    """What this engine is for. Raises `OptionsError` where nobody says."""
    if kv_role in ROLES:
        return ROLES[kv_role]
    try:
        return Role(environment.get(ROLE_VARIABLE, ""))
    except ValueError:
        raise OptionsError(
            f"kv_role is {kv_role!r}: say kv_producer on prefill nodes and kv_consumer on decode nodes, or kv_both with"
            f" {ROLE_VARIABLE} in the environment"
        ) from None
