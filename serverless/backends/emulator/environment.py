"""The environment variables of an emulated function."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dorylax.serverless.backends.environment import worker_environment

_OF_THE_CLOUD = ("AWS_", "_LAMBDA_", "LAMBDA_")


def function_environment(parent: Mapping[str, str], threads: int, seconds: float) -> dict[str, str]:
    """A worker's environment without the parent's AWS variables: its credentials are not the function's.

    Args:
        parent: environment of the process that starts it.
        threads: of XLA and of NumPy's BLAS, ≥ 1.
        seconds: after which the emulator ends a call; rounded up to whole ones.
    """
    environment = {
        name: value for name, value in worker_environment(parent, threads).items() if not name.startswith(_OF_THE_CLOUD)
    }
    return {**environment, "AWS_LAMBDA_FUNCTION_TIMEOUT": str(math.ceil(seconds))}
