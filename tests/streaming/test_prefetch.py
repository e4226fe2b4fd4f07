"""Units come in order from buffers that nobody overwrites too early, and are written in order; errors of disks are told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dorylax.streaming.columns import ComputedColumn, FileColumn, ScratchColumn
from dorylax.streaming.transfers import Prefetcher, Traffic, Writer


@pytest.mark.parametrize("buffers", [3, 4, 9])
def test_units_in_order(tmp_path: Path, buffers: int) -> None:
    rows = np.repeat(np.arange(50, dtype=np.int32)[:, None], 1024, axis=1)  # a block of the disk each
    (tmp_path / "rows").write_bytes(rows.tobytes())
    bounds = np.array([0, 10, 11, 30, 30, 45, 50])
    column = FileColumn(tmp_path / "rows", 0, np.int32, (1024,), bounds)
    numbers = ComputedColumn(np.arange, bounds)
    with ThreadPoolExecutor(1) as threads:
        traffic = Traffic()
        prefetcher = Prefetcher(threads, traffic, buffers)
        for _ in range(2):
            found, before = [], None
            for read in prefetcher.over(range(6), {"rows": column, "numbers": numbers}):
                threads.submit(int).result()  # whatever is read ahead by now is there
                for valid in filter(None, (before, read)):  # the unit before is still computed
                    np.testing.assert_array_equal(valid["rows"][:, 0], valid["numbers"])
                found.append(read["rows"].copy())
                before = read
            np.testing.assert_array_equal(np.concatenate(found), rows)
        assert 2 * rows.nbytes < traffic.read < 3 * rows.nbytes


def test_an_error_reaches_who_reads_and_the_rest_is_left(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(100))
    column = FileColumn(tmp_path / "rows", 0, np.uint8, (), np.array([0, 50, 100, 150, 200]))
    with ThreadPoolExecutor(1) as threads:
        prefetcher = Prefetcher(threads, Traffic(), 3)
        units = prefetcher.over(range(4), {"rows": column})
        assert len(next(units)["rows"]) == 50
        next(units)
        with pytest.raises(OSError, match="ends at byte 100"):
            next(units)


ROWS = np.arange(20, dtype=np.float32)


def write(writer: Writer, column: ScratchColumn, count: int) -> None:
    with writer.finished():
        for unit in range(count):
            writer.put(column, unit, ROWS[2 * unit : 2 * unit + 2])


@pytest.mark.parametrize("count", [1, 9], ids=["at the end", "on the way"])
def test_a_full_disk_reaches_whoever_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    column = ScratchColumn(tmp_path, "x", 10, np.float32)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(column), "write", full)
    with ThreadPoolExecutor(1) as threads:
        writer = Writer(threads, Traffic())
        with pytest.raises(OSError, match="No space left"):
            write(writer, column, count)
        with writer.finished():
            pass  # nothing is left of it
    column.close()
