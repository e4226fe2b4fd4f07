"""What a command holds is sampled, with what it has started; one that would take the last memory is ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness import host_memory

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]


def test_peaks_are_of_each_process() -> None:
    child = "held = bytearray(200 << 20); import time; time.sleep(1)"
    code = f"import subprocess, sys; held = bytearray(100 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    found = host_memory.peaks([], ["-c", code])
    assert found.whole
    assert found.seconds > 1
    assert 100 < found.driver / 2**20 < 150
    (below,) = found.hosts
    assert 200 < below / 2**20 < 250


def test_what_would_take_the_last_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.perf_counter()
    there = iter([2**40] * 30)
    monkeypatch.setattr(host_memory, "available", lambda: next(there, 0))
    child = "import time; time.sleep(50)"
    found = host_memory.peaks([], ["-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"])
    assert not found.whole
    assert time.perf_counter() - begin < 20


def test_what_fails_is_told() -> None:
    with pytest.raises(SystemExit, match=r"^dorylax train x ended with 3$"):
        host_memory.peaks(["train", "x"], ["-c", "raise SystemExit(3)"])
