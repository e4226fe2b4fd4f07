"""Timing and memory of one side, in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def peak_bytes() -> int:
    """The largest resident size of this process so far, mapped pages included: VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM: this benchmark needs Linux")


def forget_peak() -> None:
    """Lets `peak_bytes` begin again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


class Stopwatch:
    """Seconds of one-time steps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, function: Callable[[], Any]) -> Any:
        """Runs the function, and adds its seconds to those under this name."""
        begin = time.perf_counter()
        result = function()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        return result


def run_epochs(step: Callable[[], float], epochs: int) -> tuple[list[float], list[float]]:
    """Losses and seconds of a warm-up and `epochs` epochs; the loss is the one before the epoch's update."""
    losses, seconds = [], []
    for _ in range(epochs + 1):
        begin = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
    return losses, seconds
