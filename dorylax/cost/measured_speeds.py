"""Speeds of a measured machine, which depend on the sizes of tasks."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from dorylax.cost.instance import Instance
from dorylax.cost.measured import Measured

_NUMBER_BYTES = 4  # widths are those of float32


class RowsRead(NamedTuple):
    """Rows that a task reads along edges: bytes of a row, and of all distinct rows, which caches may hold."""

    row_bytes: int
    held_bytes: int


@final
class MeasuredSpeeds:
    """Seconds of tasks on a measured machine without other load, described as an instance.

    The speed of reading rows along edges is interpolated between measurements: its logarithm is linear in those of width and
    size, and constant beyond the outermost.
    """

    def __init__(self, measured: Measured, described: Instance) -> None:
        self._measured = measured
        self._products = {1: described.flops * (described.lone_thread if described.threads > 1 else 1.0)}
        self._products[described.threads] = described.flops * described.threads
        self._threads = described.threads
        self._alone = _AlongEdges(_gathers(measured, 1))
        # None if the description has another number of threads than the measurements.
        together = _gathers(measured, described.threads)
        self._together = _AlongEdges(together) if together else None
        # Slowdown of a thread, at the description's speeds, while all threads do the same.
        self._computing = described.lift(1) / described.lift(described.threads)
        asked = described.threads * described.memory_bandwidth * described.lift(1)
        self._reading = max(self._computing, asked / (described.total_memory_bandwidth or math.inf))
        self._copied = self._by("memory", 1)
        self._stages: dict[int, tuple[float, float, float]] = {}

    def reading(self, bytes: float, rows: RowsRead | None) -> float:
        """Seconds of one thread that reads rows along edges, or that copies if `rows` is None."""
        return bytes / (self._copied if rows is None else self._alone.speed(rows))

    def held_back(self, rows: RowsRead | None) -> float:
        """Share of a reading thread's time that grows if memory serves other threads, 0 … 1.

        Caches are not shared as memory is: all threads together read cached rows faster than memory delivers them. With this
        share a thread takes the measured time while all others read such rows; the rest grows as arithmetic does, if
        threads share cores.
        """
        if rows is None or self._together is None or self._reading == self._computing:
            return 1.0
        measured = self._threads * self._alone.speed(rows) / self._together.speed(rows)
        return min(max(0.0, (measured - self._computing) / (self._reading - self._computing)), 1.0)

    def stage(self, flops: float, elementwise: float, bytes: float, threads: int) -> float:
        """Seconds of a stage on so many threads of XLA.

        `elementwise` operations, a part of `flops`, are outside matrix products; `bytes` are operands and results.
        """
        found = self._stages.get(threads)
        if found is None:
            products = self._products.get(threads, threads * self._products[1])
            found = self._stages[threads] = (products, self._by("elementwise", threads), self._by("stage", threads))
        products, others, moved = found
        return (flops - elementwise) / products + elementwise / others + bytes / moved

    def _by(self, kind: str, threads: int) -> float:
        """Speed of so many threads together, from the measurement with the nearest number of threads."""
        nearest = min(self._measured.of(kind), key=lambda one: abs(int(one.point["threads"]) - threads))
        return threads * nearest.median / int(nearest.point["threads"])


@final
class _AlongEdges:
    """Speed of reading rows along edges, from bytes per second by the bytes of a row and of all rows."""

    def __init__(self, speeds: Mapping[tuple[float, float], float]) -> None:
        widths, self._sizes = (sorted({key[place] for key in speeds}) for place in (0, 1))
        # Additional widths count if all sizes were measured for them.
        self._widths = [width for width in widths if all((width, size) in speeds for size in self._sizes)]
        self._logs = {key: math.log(speed) for key, speed in speeds.items()}

    def speed(self, rows: RowsRead) -> float:
        (a, b, up), (c, d, along) = _between(self._widths, rows.row_bytes), _between(self._sizes, rows.held_bytes)
        low, high = ((1 - along) * self._logs[width, c] + along * self._logs[width, d] for width in (a, b))
        return math.exp((1 - up) * low + up * high)


def _gathers(measured: Measured, threads: int) -> Mapping[tuple[float, float], float]:
    """Measured speeds of so many threads."""
    return {
        (float(one.point["width"]) * _NUMBER_BYTES, float(one.point["rows_bytes"])): one.median
        for one in measured.of("gather")
        if one.point["threads"] == threads
    }


def _between(marks: Sequence[float], value: float) -> tuple[float, float, float]:
    """The marks on both sides, and how far the value is from the lower one to the upper, in logarithms."""
    place = bisect.bisect(marks, value)
    if place in (0, len(marks)):
        end = marks[min(place, len(marks) - 1)]
        return end, end, 0.0
    low, high = marks[place - 1 : place + 1]
    return low, high, math.log(value / low) / math.log(high / low)
