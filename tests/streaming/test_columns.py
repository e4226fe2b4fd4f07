"""Rows come back as they were, wherever they lay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dorylax.errors import RunError
from dorylax.streaming.columns import (
    Column,
    FileColumn,
    JoinedColumn,
    PiecesColumn,
    ScratchColumn,
    file_of,
)
from dorylax.streaming.direct import anonymous

BOUNDS = np.array([0, 3, 3, 7], np.int64)
ROWS = np.random.default_rng(0).normal(size=(7, 2, 3)).astype(np.float32)


def read(column: Column, unit: int) -> np.ndarray:
    size = column.room(unit)
    return np.array(column.read(unit, anonymous(size) if size else None))


def shapes() -> list[tuple[int, ...]]:
    return [(int(count), 2, 3) for count in np.diff(BOUNDS)]


def test_rows_of_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(64) + ROWS.tobytes())
    mapped = np.memmap(path, np.float32, "r", 64, ROWS.shape)
    assert file_of(mapped) == (path, 64)
    assert file_of(np.asarray(mapped)[1:]) == (path, 64 + ROWS[0].nbytes)
    assert file_of(mapped[:, :1]) is None, "not one after the other"
    assert file_of(ROWS) is None
    column = FileColumn(path, 64, np.float32, (2, 3), BOUNDS)
    column.check(mapped[:2])
    np.testing.assert_array_equal(read(column, 2), ROWS[3:])
    assert len(read(column, 1)) == 0
    other = tmp_path / "other"
    other.write_bytes(bytes(64) + (ROWS + 1).tobytes())
    other.replace(path)
    with pytest.raises(RunError, match="has changed since it was loaded"):
        FileColumn(path, 64, np.float32, (2, 3), BOUNDS).check(mapped[:2])


@pytest.mark.parametrize("wrong", [5, -1, 2**31 - 1])
def test_numbers_of_vertices_that_a_file_suddenly_holds_reach_no_kernel(tmp_path: Path, wrong: int) -> None:
    path = tmp_path / "indices"
    indices = np.array([0, 4, 1, 3], np.int32)
    path.write_bytes(indices.tobytes())
    column = FileColumn(path, 0, np.int32, (), np.array([0, 2, 4]), limit=5)
    np.testing.assert_array_equal(read(column, 1), [1, 3])
    indices[2] = wrong
    path.write_bytes(indices.tobytes())
    np.testing.assert_array_equal(read(column, 0), [0, 4])
    with pytest.raises(RunError, match="has changed since it was loaded"):
        read(column, 1)
    column.close()


def test_rows_in_memory_take_no_room_in_a_file(tmp_path: Path) -> None:
    file = ScratchColumn(tmp_path, "x", len(shapes()), np.float32)
    column = PiecesColumn({2}, file)
    for unit in range(3):
        assert column.on_disk(unit) == (unit != 2)
        column.write(unit, ROWS[BOUNDS[unit] : BOUNDS[unit + 1]])
    assert column.room(0) > 0
    assert column.room(2) == 0
    assert file.bytes == 4096, "of the first unit alone"
    column.close()


def test_blocks_of_columns_side_by_side(tmp_path: Path) -> None:
    parts = []
    for block in (slice(0, 2), slice(2, 3)):
        part = ScratchColumn(tmp_path, f"{block.start}", len(shapes()), np.float32)
        for unit in range(3):
            part.write(unit, ROWS[BOUNDS[unit] : BOUNDS[unit + 1], :, block])
        parts.append(part)
    column = JoinedColumn(parts)
    for unit in range(3):
        np.testing.assert_array_equal(read(column, unit), ROWS[BOUNDS[unit] : BOUNDS[unit + 1]])
    column.close()
