"""Runs all measurements of a machine, one after the other, in rounds."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import final

import optax
from flax import nnx

from dorylax.calibration import loopback, speeds
from dorylax.calibration.steps import Quantity, Sizes, Step, Values, quantity, summary
from dorylax.cost.measured import Measured
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.machine import cores
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.timeline import Span
from dorylax.program.model.flax_nnx import take_apart
from dorylax.version import __version__

Progress = Callable[[int, int, str], object]
"""Called with the number of finished steps, the number of steps, and the label of the next."""

ROUNDS = 3
"""Number of rounds. Repeats of a measurement are spread over them, so that a slow moment does not dominate it."""

MOST_SPREAD = 0.25
"""Largest range between quartiles over the median; a measurement beyond it is in doubt."""

MOST_OTHERS = 0.1
"""Largest share of the cores' time for other processes; beyond it all measurements are in doubt."""

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # columns of /proc/stat: idle and iowait


def measure(progress: Progress, sizes: Sizes) -> Measured:
    """Measure this machine.

    Args:
        progress: Called before each step.
        sizes: Sizes of the measurements.
    """
    threads = cores()
    load = OthersLoad()
    values: dict[Quantity, list[float]] = {}
    with ExitStack() as stack:
        steps: list[Step] = [
            *speeds.gathers(sizes, threads),
            *speeds.products(sizes, threads, stack),
            *speeds.copies(sizes, threads),
            Step("tasks", partial(_tasks, sizes.epochs)),
            *loopback.requests(sizes),
        ]
        for done, step in enumerate(ROUNDS * steps):
            progress(done, ROUNDS * len(steps), step.label)
            for measured, found in step.measure().items():
                values.setdefault(measured, []).extend(found)
    return Measured(
        date=datetime.datetime.now().astimezone().date().isoformat(),
        dorylax=__version__,
        processor=processor(),
        cores=threads,
        threads_per_core=threads_per_core(),
        others=load.share(),
        results=tuple(summary(one.kind, found, **dict(one.at)) for one, found in values.items()),
    )


def _tasks(epochs: int) -> Values:
    """Measure inside and around tasks that compute next to nothing: a GCN on a tiny graph, one task at a time."""
    data = load("communities", size="tiny")
    assert data.num_classes is not None
    parts = take_apart(GCN(data.num_features, 16, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
    pipeline = Pipeline.of(parts, data, optax.adam(0.01), PipelineConfig(mode="no-pipe", intervals=16))
    inside, around, spans = list[float](), list[float](), list[Span]()
    with closing(pipeline.start(parts.params, None, parts.state, trace=spans.append)) as run:
        run.run_epoch()  # compiles
        for _ in range(epochs):
            spans.clear()
            seconds = run.run_epoch().seconds
            inside.append(fmean(span.end - span.start for span in spans if span.resource == "graph"))
            around.append((seconds - sum(span.end - span.start for span in spans)) / len(spans))
    return {quantity("task", part="inside"): inside, quantity("task", part="around"): around}


def doubts(measured: Measured) -> list[str]:
    """Reasons to doubt the measurements, as sentences; empty without any."""
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
    """Number of hardware threads per core, from `sys` below `root`; 1 if the system does not report it."""
    try:
        siblings = (root / "sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text("ascii").strip()
    except OSError:
        return 1
    ends = [part.partition("-") for part in siblings.split(",")]  # of "0,32" or "0-1"
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def processor(root: Path = Path("/")) -> str:
    """Name of the machine's processor, from `proc` below `root`."""
    try:
        lines = (root / "proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


@final
class OthersLoad:
    """The load of other processes on the usable cores since its construction; `root` is the parent of `proc`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._stat = root / "proc/stat"
        self._begin = time.perf_counter()
        self._busy, self._own = _busy_seconds(self._stat), _own_seconds()

    def share(self) -> float | None:
        """Share of these cores' time (0 to 1); None if unknown. Child processes count as this process once ended."""
        now = _busy_seconds(self._stat)
        if now is None or self._busy is None:
            return None
        cores = len(os.sched_getaffinity(0))
        others = (now - self._busy) - (_own_seconds() - self._own)
        return min(1.0, max(0.0, others / (cores * (time.perf_counter() - self._begin))))


def _own_seconds() -> float:
    return sum(os.times()[:4])


def _busy_seconds(stat: Path) -> float | None:
    """Busy time of the cores that this process may use, including that of other virtual machines."""
    try:
        lines = stat.read_text("ascii").splitlines()
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    rows = [columns[:8] for name, *columns in map(str.split, lines) if name in mine]
    return sum(int(text) for row in rows for place, text in enumerate(row) if place not in _IDLE) / _TICKS
