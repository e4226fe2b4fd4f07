"""Rows that move through files come where those that move in memory do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.stream import moving
from dorylax.graph.stream.archive_reader import HeldRows
from dorylax.graph.stream.moving import Move
from dorylax.graph.validate import GraphError


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "BLOCK_BYTES", 64)
        patch.setattr(moving, "_BLOCK", 16)
        patch.setattr(moving, "_WORKING_BYTES", 256)
        patch.setattr("dorylax.graph.stream.archive_reader.BLOCK_BYTES", 64)
        yield


def test_too_little_room_says_so(tmp_path: Path) -> None:
    move = Move(np.arange(5000, dtype=np.int32), tmp_path, 4 * 64 + 100)
    with pytest.raises(GraphError, match=r"would take 1,\d\d\d files at once, and at most 1,000 are opened: give more"):
        list(move.rows(HeldRows(np.zeros((5000, 1), np.float32))))
