"""What users see and write is as it was: help, settings that files may hold and their refusals, signatures, the flagship.

A change that is meant to change them records them again (`python tests/golden/record.py snapshots`, or `flagship`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import flagship, snapshots
from golden.cases import rounding_as_recorded


@pytest.mark.parametrize("name", snapshots.NAMES)
def test_a_snapshot_is_what_it_was(name: str, tmp_path: Path) -> None:
    recorded = (snapshots.FOLDER / name).read_text()
    assert snapshots.render(name, recorded, tmp_path).splitlines() == recorded.splitlines()


def test_files_that_may_be_written_are_accepted_and_others_refused() -> None:
    for kind in snapshots.READERS:
        results = (snapshots.FOLDER / f"{kind}.txt").read_text().splitlines()[1::2]
        assert 1 < sum(line.startswith(snapshots.REFUSED) for line in results) < len(results) - 1


@pytest.mark.parametrize(
    "size", ["small", pytest.param("full", marks=[pytest.mark.exhaustive, pytest.mark.timeout(1200)])]
)
def test_the_flagship_leaves_the_same_table_and_files(size: str, tmp_path: Path) -> None:
    with rounding_as_recorded():
        table, left = flagship.run(size, tmp_path)
    tables, files = flagship.files(size)
    assert left == files.read_text()
    assert tables, "no table for this kind of processor: run `python tests/golden/record.py flagship`"
    assert table in [recorded.read_text() for recorded in tables]
