"""Sizes of a command and of its descendants are sampled; a command that would take the last memory is ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness import measure

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")]


@pytest.mark.parametrize("size", ["peak_bytes", "proportional_bytes"])
def test_peaks_are_of_each_process(size: str) -> None:
    child = "held = bytearray(200 << 20); import time; time.sleep(0.5)"
    code = f"import subprocess, sys; held = bytearray(100 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    found = measure.watched([sys.executable, "-c", code], getattr(measure, size))
    assert found.whole
    assert found.seconds > 0.5
    assert 100 < found.peak / 2**20 < 150
    (below,) = found.others
    assert 200 < below / 2**20 < 250


def test_a_command_that_would_take_the_last_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.perf_counter()
    there = iter([2**40] * 10)
    monkeypatch.setattr(measure, "available_bytes", lambda: next(there, 0))
    child = "import time; time.sleep(50)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert not measure.watched([sys.executable, "-c", code], guarded=True).whole
    assert time.perf_counter() - begin < 20
