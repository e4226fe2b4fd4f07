from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dorylax.calibration import machine as machines
from dorylax.calibration.machine import OthersLoad

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two cores, 0 and 3, of a machine that also has core 1; says what they have done, and how long it took."""
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(machines, "_own_seconds", lambda: 0.25 * now[0])

    def at(seconds: float, user: float, idle: float, steal: float) -> None:
        now[0] = seconds
        mine = f"{user * TICKS:.0f} 0 0 {idle * TICKS:.0f} {idle * TICKS:.0f} 0 0 {steal * TICKS:.0f} 5 0"
        other = f"{90 * seconds * TICKS:.0f} 0 0 0 0 0 0 0 0 0"
        lines = ["cpu  1 2 3", f"cpu0 {mine}", f"cpu1 {other}", f"cpu3 {mine}", "intr 1"]
        (tmp_path / "proc/stat").write_text("\n".join(lines))

    return at, tmp_path


def test_what_is_neither_idle_nor_own_is_of_others(machine) -> None:
    at, root = machine
    at(0, 0, 0, 0)
    watched = OthersLoad(root)
    at(10, user=3, idle=6, steal=1)
    # Of 20 seconds of the two cores 8 are busy, of which 2.5 are this process's own.
    assert watched.share() == pytest.approx(5.5 / 20)
    at(20, user=1, idle=0, steal=0)
    assert watched.share() == 0.0  # counts are rounded: never less than nothing


def test_where_the_system_does_not_say_nobody_knows(tmp_path: Path) -> None:
    assert OthersLoad(tmp_path).share() is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not say")
def test_here_it_is_a_share() -> None:
    watched = OthersLoad()
    time.sleep(0.05)
    share = watched.share()
    assert share is not None
    assert 0 <= share <= 1
