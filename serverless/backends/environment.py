"""Environment variables and JAX settings that worker processes inherit."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import jax

from dorylax import version
from dorylax.serverless.handler.settings import JaxSetting

_OF_CLOUDS = ("AWS_", "LAMBDA_", "_LAMBDA_", "AZURE_", "GOOGLE_", "CLOUDSDK_")
_JAX_SETTINGS = ("jax_enable_x64",)


def worker_environment(parent: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return a worker's environment: the parent's without cloud credentials, with import paths and few threads.

    Args:
        parent: Environment of the starting process.
        threads: Threads of XLA and of NumPy's BLAS, ≥ 1.

    Raises:
        ValueError: `threads` is below 1.
    """
    # Otherwise a `json.py` in the working directory would hide Python's.
    taken = {name: value for name, value in parent.items() if not name.startswith(_OF_CLOUDS)}
    environment = {**taken, **computing_environment(threads), "PYTHONSAFEPATH": "1"}
    root = Path(version.__file__).parents[1]
    # Not for an installed package, whose neighbors would hide modules of the standard library.
    if str(root) not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        path = parent.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{path}" if path else str(root)
    return environment


def computing_environment(threads: int) -> dict[str, str]:
    """Return variables that set the number of threads of XLA and of NumPy's BLAS.

    Raises:
        ValueError: `threads` is below 1.
    """
    if threads < 1:
        raise ValueError(f"threads must be ≥ 1, got {threads}")
    count = str(threads)
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # The size of XLA's pools on CPUs; no other setting exists (openxla: xla/pjrt/utils.cc, DefaultThreadPoolSize).
        "PJRT_NPROC": count,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
    }


def jax_settings() -> dict[str, JaxSetting]:
    """Return the JAX settings of this process that workers need to load stages; stages contain all others."""
    return {name: getattr(jax.config, name) for name in _JAX_SETTINGS}
