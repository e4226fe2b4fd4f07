"""What every test shares: run-time shape and dtype checks on the whole package, and where the real graphs are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Before any module of the package is imported, so that every annotated function is checked.
install_import_hook("dorylax", "beartype.beartype")

# A shared machine may stall for longer than any deadline; examples come from a fixed seed so that CI does not flake.
settings.register_profile("dorylax", deadline=None, derandomize=True)
settings.load_profile("dorylax")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real graphs that DORYLAX_DATA names; tests that need it skip where it is not set."""
    folder = os.environ.get("DORYLAX_DATA")
    if not folder:
        pytest.skip("DORYLAX_DATA is not set: it names the folder with cora.npz and the other real graphs")
    return Path(folder)
