"""What is written behind is written, in order; what fails reaches whoever writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dorylax.streaming.columns import ScratchColumn
from dorylax.streaming.writing import Writer

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
        writer = Writer(threads)
        with pytest.raises(OSError, match="No space left"):
            write(writer, column, count)
        with writer.finished():
            pass  # nothing is left of it
    column.close()
