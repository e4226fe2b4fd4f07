"""What importing the package pulls in."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dorylax.program


def test_stage_workers_import_no_flax() -> None:
    code = (
        "import sys, dorylax.program, dorylax.program.artefact.stage_file\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'flax', 'optax', 'scipy', 'orbax'}))\n"
        "dorylax.program.trace\n"
        "print('flax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


def test_public_names() -> None:
    assert dir(dorylax.program) == sorted(dorylax.program.__all__)
    assert all(getattr(dorylax.program, name) is not None for name in dorylax.program.__all__)
    with pytest.raises(AttributeError, match=r"module 'dorylax.program' has no attribute 'tracer'"):
        dorylax.program.tracer  # noqa: B018
