"""environment.json: what a run ran on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from dorylax.version import __version__

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")

UserCode: TypeAlias = Mapping[str, Mapping[str, str]]
"""`FILE.py`, as a configuration names it → `file`, its path, and `sha256` of what was executed."""


def environment(
    user_code: UserCode = MappingProxyType({}), checkpoints: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What this process runs on, as JSON values; docs/run-directory.md documents them.

    Args:
        user_code: of the run, if it runs some.
        checkpoints: `place` of its checkpoints, and `directory`, by which it is known there; None where it has no other
            place than its directory.
    """
    return {
        "dorylax": __version__,
        "kernel": _kernel(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "jax_backend": sys.modules["jax"].default_backend() if "jax" in sys.modules else None,
        "packages": {name: _installed(name) for name in _PACKAGES},
        **({"user_code": dict(user_code)} if user_code else {}),
        **({} if checkpoints is None else {"checkpoints": dict(checkpoints)}),
    }


def now() -> str:
    """When something starts, for what is noted beside its environment: `2026-11-26T01:40:00+00:00`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernel() -> dict[str, Any]:
    """Which lowering the graph operators use on the CPU: "native" or "segment", and for the latter why."""
    from dorylax.ops import native  # late: it loads JAX, and a run's directory can be read without

    status = native.status()
    name = "native" if status.available else "segment"
    return {"name": name, "instruction_set": status.instruction_set, "reason": status.reason}
