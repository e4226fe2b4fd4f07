"""Time and memory of functions and processes, as Linux counts them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.processes import below

GIB = 2**30
_EVERY = 0.02
_LEFT = 700 * 2**20
"""Bytes that a watched process leaves: one that would take more is ended, before the system ends something else."""


def peak_bytes(pid: int | str = "self") -> int:
    """The largest resident size of a process so far, mapped pages included: VmHWM."""
    return 1024 * _number(Path(f"/proc/{pid}/status"), "VmHWM")


def proportional_bytes(pid: int) -> int:
    """The proportional set size of a process now: of a page that processes share each counts its part."""
    return 1024 * _number(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def available_bytes() -> int:
    """Bytes that processes may still take without swapping."""
    return 1024 * _number(Path("/proc/meminfo"), "MemAvailable")


def _number(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"{path} has no {name}: this benchmark needs Linux, and a process that lives")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes so far; none of those that have ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Watched(NamedTuple):
    """A command that has ended.

    Attributes:
        seconds: From its start to its end.
        peak: Largest size of its process, bytes.
        others: Those of the processes that it started, largest first.
        whole: Whether it came to its end, and was not ended because memory ran out; else sizes are lower bounds.
    """

    seconds: float
    peak: int
    others: list[int]
    whole: bool


def watched(words: Sequence[str], size: Callable[[int], int] = peak_bytes, *, guarded: bool = False) -> Watched:
    """Runs a command in a process of its own, and samples its memory and that of its descendants.

    Args:
        words: Words of `dorylax`, or a whole command.
        size: Of a process, bytes.
        guarded: Whether it is ended when it leaves too little memory to the system.

    Raises:
        SystemExit: The command failed.
    """
    command = words if Path(words[0]).is_absolute() else [sys.executable, "-m", "dorylax", *words]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C"})
    found: dict[int, int] = {}
    ended = threading.Event()
    guard = threading.Thread(target=_end_in_time, args=(process, ended))
    if guarded:
        guard.start()
    while process.poll() is None:
        for pid in (process.pid, *below(process.pid)):
            with contextlib.suppress(OSError):
                found[pid] = max(size(pid), found.get(pid, 0))
        time.sleep(5 * _EVERY if guarded else _EVERY)  # PSS takes long to sample
    seconds = time.perf_counter() - begin
    if guarded:
        guard.join()
    if process.returncode and not ended.is_set():
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Watched(seconds, found.pop(process.pid, 0), sorted(found.values(), reverse=True), not ended.is_set())


def _end_in_time(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """Kills a process and its descendants when too little memory is left; looks often, as sampling takes long."""
    while process.poll() is None:
        if available_bytes() < _LEFT:
            ended.set()
            for pid in (process.pid, *below(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_EVERY)


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


def timed(run: Callable[[], object], rounds: int, *, warm_up: int = 0, settle: float = 0.0) -> list[float]:
    """Seconds of each round, after some that do not count."""
    seconds = []
    for _ in range(warm_up + rounds):
        time.sleep(settle)
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return seconds[warm_up:]
