"""The memory of a command and of its hosts, sampled while they run; one for which there is none left is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.processes import below, held

_SAMPLE_SECONDS, _LOOK_SECONDS = 0.1, 0.02
_LEFT = 700 * 2**20
"""Bytes that a run leaves: where it would take more it is ended, before the system ends something else."""


class Peaks(NamedTuple):
    """The largest proportional set sizes (PSS of smaps_rollup: of a shared page its share alone), bytes.

    Attributes:
        driver: of the process of the command.
        hosts: of those below it, largest first.
        whole: whether the run came to its end; else these are no peaks but what was held when it was ended.
        seconds: that it ran.
    """

    driver: int
    hosts: list[int]
    whole: bool
    seconds: float


def peaks(words: Sequence[str], program: Sequence[str] = ("-m", "dorylax")) -> Peaks:
    """Runs a command of `dorylax`, and samples.

    Args:
        words: of the command.
        program: what is `dorylax` to Python.

    Raises:
        SystemExit: it failed.
    """
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *program, *words], stdout=subprocess.DEVNULL)
    found: dict[int, int] = {}
    ended = threading.Event()
    watch = threading.Thread(target=_end_in_time, args=(process, ended))
    watch.start()
    while process.poll() is None:
        for pid in (process.pid, *below(process.pid)):
            if (now := held(pid)) is not None:
                found[pid] = max(now.pss, found.get(pid, 0))
        time.sleep(_SAMPLE_SECONDS)
    watch.join()
    whole = not ended.is_set()
    if whole and process.returncode:
        raise SystemExit(f"dorylax {' '.join(words)} ended with {process.returncode}")
    driver = found.pop(process.pid, 0)
    return Peaks(driver, sorted(found.values(), reverse=True), whole, time.perf_counter() - begin)


def _end_in_time(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """Kills a process, and those below it, when it leaves too little; looks often, since sampling a large one takes long."""
    while process.poll() is None:
        if available() < _LEFT:
            ended.set()
            for pid in (process.pid, *below(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def available() -> int:
    """Bytes that processes may still take without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/meminfo does not say what is available")
