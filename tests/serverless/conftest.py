"""What tests of whole runs in sandboxes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.local_runs import Undisturbed, compiled_quickly, undisturbed_run


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """For whole modules: `pytestmark = pytest.mark.usefixtures("quick_compilation")`."""
    with compiled_quickly():
        yield


@pytest.fixture(scope="module")
def undisturbed(quick_compilation: None) -> Iterator[Undisturbed]:
    """What a run with nothing wrong was after each of so many epochs."""
    with undisturbed_run() as until:
        yield until
