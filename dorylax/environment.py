"""The content of environment.json: versions and machine of this process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dorylax.store.run_directory import UserCode
from dorylax.version import __version__

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def environment(
    user_code: UserCode = MappingProxyType({}), checkpoints: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Describe versions and machine of this process as JSON values; docs/run-directory.md documents them.

    Args:
        user_code: The user's own code that the run executes.
        checkpoints: `place` of the run's checkpoints, and the `directory` that identifies the run there; None if they are
            in its directory.
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


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernel() -> dict[str, Any]:
    """Name the lowering of graph operators on the CPU, "native" or "segment", with the reason for the latter."""
    from dorylax.ops import native  # late: it loads JAX, and a run's directory can be read without

    status = native.status()
    name = "native" if status.available else "segment"
    return {"name": name, "instruction_set": status.instruction_set, "reason": status.reason}
