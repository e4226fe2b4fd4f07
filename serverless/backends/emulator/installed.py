"""Detection of the installed Lambda emulator and its runtime."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from dorylax.settings.errors import ConfigError

VARIABLE = "DORYLAX_RIE"
_PROGRAM = "aws-lambda-rie"
_RUNTIME = "awslambdaric"
_WHERE = "docs/serverless.md says where to get it"


def find_emulator(environment: Mapping[str, str]) -> Path:
    """Find AWS's Runtime Interface Emulator: the file in DORYLAX_RIE, or else `aws-lambda-rie` on PATH.

    Args:
        environment: Environment variables of this process.

    Raises:
        ConfigError: If the emulator or AWS's runtime for Python is missing.
    """
    found = environment.get(VARIABLE) or shutil.which(_PROGRAM, path=environment.get("PATH", os.defpath))
    if not found:
        raise ConfigError.of(
            "tensor.backend",
            f"= emulator needs AWS's Runtime Interface Emulator: set {VARIABLE} to its file, or put {_PROGRAM} on PATH "
            f"({_WHERE})",
        )
    if not os.access(found, os.X_OK) or Path(found).is_dir():
        raise ConfigError.of(
            "tensor.backend", f"= emulator: {VARIABLE}={found} must be a file that can be executed ({_WHERE})"
        )
    if importlib.util.find_spec(_RUNTIME) is None:
        raise ConfigError.of(
            "tensor.backend", f"= emulator needs the package {_RUNTIME}, AWS's runtime: pip install 'dorylax[aws]'"
        )
    return Path(found).absolute()
