"""What worker processes take over from their parent: environment variables, and settings of JAX."""

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
    """The parent's environment without its cloud credentials, in which a worker imports this package and has few threads.

    Args:
        parent: environment of the process that starts it.
        threads: of XLA and of NumPy's BLAS, ≥ 1.

    Raises:
        ValueError: no thread.
    """
    # Or a `json.py` in the working directory would hide Python's own.
    taken = {name: value for name, value in parent.items() if not name.startswith(_OF_CLOUDS)}
    environment = {**taken, **computing_environment(threads), "PYTHONSAFEPATH": "1"}
    root = Path(version.__file__).parents[1]
    # An installed package is found anyway; at the front its neighbours would hide modules of the standard library.
    if str(root) not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        path = parent.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{path}" if path else str(root)
    return environment


def computing_environment(threads: int) -> dict[str, str]:
    """The variables by which a process computes on so many threads, of XLA and of NumPy's BLAS.

    Raises:
        ValueError: no thread.
    """
    if threads < 1:
        raise ValueError(f"threads must be ≥ 1, got {threads}")
    count = str(threads)
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # The size of XLA's pools on CPUs; nothing else sets it (openxla: xla/pjrt/utils.cc, DefaultThreadPoolSize).
        "PJRT_NPROC": count,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
    }


def jax_settings() -> dict[str, JaxSetting]:
    """This process's settings of JAX that workers need to load the stages; stages hold all others."""
    return {name: getattr(jax.config, name) for name in _JAX_SETTINGS}
