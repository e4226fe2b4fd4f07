"""What tests of images share."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from support.locks import locked_here


@pytest.fixture(autouse=True, scope="session")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hashes for the versions that are installed, whichever they are."""
    if importlib.util.find_spec("awslambdaric") is None:  # what needs it is skipped
        yield
        return
    with locked_here(tmp_path_factory.mktemp("lock")):
        yield
