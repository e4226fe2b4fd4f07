"""Measures all of a machine, one thing after the other, in rounds."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from dorylax.calibration import copies, disk, fetches, gather, loopback, products, reference, tasks
from dorylax.calibration.load import OthersLoad
from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Quantity, Step, summary
from dorylax.cost.measured import Measured
from dorylax.machine import cores
from dorylax.version import __version__

Progress = Callable[[int, int, str], object]
"""Told how many steps are done, how many there are, and which is next."""

ROUNDS = 3
"""Everything is measured so many times, all the rest in between: a slow moment of the machine does not decide."""

MOST_SPREAD = 0.25
"""Of the range between quartiles over the median: beyond it a measurement is in doubt."""

MOST_OTHERS = 0.1
"""Of the cores' time: where others use more of it, all measurements are in doubt."""


def measure(folder: Path, progress: Progress, sizes: Sizes) -> Measured:
    """Measures this machine.

    Args:
        folder: on the disk that is measured, if it may be written.
        progress: is told what happens.
        sizes: of what is measured with.

    Raises:
        OSError: the disk fails, or is full; it names the folder.
    """
    threads = cores()
    load = OthersLoad()
    values: dict[Quantity, list[float]] = {}
    with ExitStack() as stack:
        steps: list[Step] = [
            *disk.steps(sizes, folder),  # first: it may be full
            *gather.steps(sizes, threads),
            *products.steps(sizes, threads, stack),
            *copies.steps(sizes, threads),
            *tasks.steps(sizes),
            *fetches.steps(sizes),
            *reference.steps(sizes),
            *loopback.steps(sizes),
        ]
        for done, step in enumerate(ROUNDS * steps):
            progress(done, ROUNDS * len(steps), step.label)
            for quantity, found in step.measure().items():
                values.setdefault(quantity, []).extend(found)
    return Measured(
        date=datetime.datetime.now().astimezone().date().isoformat(),
        dorylax=__version__,
        processor=processor(),
        cores=threads,
        threads_per_core=threads_per_core(),
        others=load.share(),
        results=tuple(summary(one.kind, found, **dict(one.at)) for one, found in values.items()),
    )


def doubts(measured: Measured) -> list[str]:
    """Sentences about what makes the measurements doubtful; none if nothing does."""
    found = []
    if measured.others is not None and measured.others > MOST_OTHERS:
        found.append(
            f"other processes used {100 * measured.others:.0f} % of the cores meanwhile, so that all speeds are too low: "
            "measure again when the machine is idle"
        )
    wide = [one for one in measured.results if one.spread > MOST_SPREAD]
    if wide:
        worst = max(wide, key=lambda one: one.spread)
        where = ", ".join(f"{name} {value}" for name, value in worst.at)
        found.append(
            f"{len(wide)} of {len(measured.results)} measurements vary by more than {100 * MOST_SPREAD:.0f} % between their "
            f"quartiles, {worst.kind} ({where}) by {100 * worst.spread:.0f} %: measure again when the machine is idle"
        )
    return found


def threads_per_core(root: Path = Path("/")) -> int:
    """How many threads a core has, as the system counts cores; 1 where it does not say.

    Args:
        root: where `sys` lies.
    """
    try:
        siblings = (root / "sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text("ascii").strip()
    except OSError:
        return 1
    found = 0
    for part in siblings.split(","):  # "0,32", "0-1"
        first, _, last = part.partition("-")
        found += int(last or first) - int(first) + 1
    return found


def processor(root: Path = Path("/")) -> str:
    """What the machine's processor is called.

    Args:
        root: where `proc` lies.
    """
    try:
        lines = (root / "proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
