"""What bounds an epoch that streams is measured in a second."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dorylax.calibration.streamed import StreamedSpeed, disk_bandwidth, gather_seconds


def test_the_larger_bound() -> None:
    speed = StreamedSpeed(1e-9, 1e9)
    assert speed.seconds(2_000_000_000, 10**9) == 2
    assert speed.seconds(1_000_000_000, 3 * 10**9) == 3


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_file(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    assert 0 < disk_bandwidth(tmp_path / "file") < 1e13


def test_gathers() -> None:
    begin = time.perf_counter()
    assert 0 < gather_seconds(4, 1_000) < 1e-5
    assert time.perf_counter() - begin < 20
