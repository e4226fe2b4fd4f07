"""Whether others use the cores meanwhile that this process measures."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import final

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # the columns of /proc/stat that are no work: idle and iowait


@final
class OthersLoad:
    """What other processes take of the cores that this one may use, from when it is made.

    Args:
        root: where `proc` lies.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._stat = root / "proc/stat"
        self._begin = time.perf_counter()
        self._busy, self._own = _busy_seconds(self._stat), _own_seconds()

    def share(self) -> float | None:
        """Their share of all time of these cores, 0 … 1; None where the system does not say.

        Processes that this one has started count as its own once they have ended.
        """
        now = _busy_seconds(self._stat)
        if now is None or self._busy is None:
            return None
        cores = len(os.sched_getaffinity(0))
        others = (now - self._busy) - (_own_seconds() - self._own)
        return min(1.0, max(0.0, others / (cores * (time.perf_counter() - self._begin))))


def _own_seconds() -> float:
    return sum(os.times()[:4])


def _busy_seconds(stat: Path) -> float | None:
    """Of the cores that this process may use: time in which somebody computed, other virtual machines included."""
    try:
        lines = stat.read_text("ascii").splitlines()
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    ticks = 0
    for name, *columns in map(str.split, lines):
        if name in mine:
            ticks += sum(int(text) for place, text in enumerate(columns[:8]) if place not in _IDLE)
    return ticks / _TICKS
