"""What tests of whole runs in sandboxes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.local_runs import Undisturbed, undisturbed_run
from support.pipelines import compiled_once


@pytest.fixture(scope="module")
def one_compilation() -> Iterator[None]:
    """For all runs of a module: `pytestmark = pytest.mark.usefixtures("one_compilation")`."""
    with compiled_once(10, 40):
        yield


@pytest.fixture(scope="module")
def undisturbed(one_compilation: None) -> Iterator[Undisturbed]:
    """What a run with nothing wrong was after each of so many epochs."""
    with undisturbed_run() as until:
        yield until
