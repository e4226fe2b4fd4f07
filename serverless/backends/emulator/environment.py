"""The environment variables of an emulated function."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dorylax.serverless.backends.environment import worker_environment


def function_environment(parent: Mapping[str, str], threads: int, seconds: float) -> dict[str, str]:
    """A worker's environment, and the variable of AWS that says how long a call may take.

    Args:
        parent: environment of the process that starts it.
        threads: of XLA and of NumPy's BLAS, ≥ 1.
        seconds: after which the emulator ends a call; rounded up to whole ones.
    """
    environment = worker_environment(parent, threads)
    return {**environment, "AWS_LAMBDA_FUNCTION_TIMEOUT": str(math.ceil(seconds))}
