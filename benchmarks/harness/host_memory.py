"""The memory of a `dorylax train` and of its hosts, sampled while they run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from harness.processes import below, held

_SAMPLE_SECONDS = 0.1


class Peaks(NamedTuple):
    """The largest proportional set sizes (PSS of smaps_rollup: of a shared page its share alone), bytes.

    Attributes:
        driver: of the process of the command.
        hosts: of those below it, largest first.
    """

    driver: int
    hosts: list[int]


def command(*words: str) -> None:
    """Runs `dorylax` with these words.

    Raises:
        SystemExit: it failed.
    """
    process = subprocess.run([sys.executable, "-m", "dorylax", *words], stdout=subprocess.DEVNULL, check=False)
    if process.returncode:
        raise SystemExit(f"dorylax {' '.join(words)} ended with {process.returncode}")


def peaks(words: Sequence[str]) -> Peaks:
    """Trains with these words of `dorylax train`, and samples.

    Raises:
        SystemExit: it failed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "dorylax", "train", "--no-save", "--json", *words], stdout=subprocess.DEVNULL
    )
    found: dict[int, int] = {}
    while process.poll() is None:
        for pid in (process.pid, *below(process.pid)):
            if (now := held(pid)) is not None:
                found[pid] = max(now.pss, found.get(pid, 0))
        time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"dorylax train {' '.join(words)} ended with {process.returncode}")
    driver = found.pop(process.pid, 0)
    return Peaks(driver, sorted(found.values(), reverse=True))
