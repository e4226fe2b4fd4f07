"""What a machine was measured to take for what its description has one speed for."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple, final

from dorylax.cost.instance import Instance
from dorylax.cost.measured import Measured, Measurement


class RowsRead(NamedTuple):
    """Rows that a task reads along edges.

    Attributes:
        row_bytes: of one.
        held_bytes: of all different ones: caches hold few of them, and not many.
    """

    row_bytes: int
    held_bytes: int


@final
class MeasuredSpeeds:
    """What tasks of a measured machine take, as if all of it were products of matrices, and rows read as on its description.

    How fast rows are read along edges lies between what was measured: the logarithm is linear in those of width and size,
    and constant beyond the outermost.

    Args:
        measured: of the machine.
        described: what was made of it.
    """

    def __init__(self, measured: Measured, described: Instance) -> None:
        # What a thread does alone, which is as long as others do nothing.
        lift = described.lift(1)
        self._flops, self._bytes = described.flops * lift, described.memory_bandwidth * lift
        found = {
            (float(one.point["width"]) * _NUMBER_BYTES, float(one.point["rows_bytes"])): one.median
            for one in measured.of("gather")
            if one.point["threads"] == 1
        }
        self._widths, self._sizes = sorted({width for width, _ in found}), sorted({size for _, size in found})
        self._logs = {key: math.log(speed) for key, speed in found.items()}
        self._elementwise = _of_a_thread(measured.of("elementwise"))
        self._copied = _of_a_thread(measured.of("memory"))

    def flops(self, flops: float, elementwise: float) -> float:
        """Operations of products that take as long.

        Args:
            flops: all.
            elementwise: those that are no products.
        """
        return flops - elementwise + elementwise * self._flops / self._elementwise

    def bytes(self, bytes: float, rows: RowsRead | None) -> float:
        """Bytes along edges that take as long, as the description has them.

        Args:
            bytes: that are read.
            rows: of which rows; None where they are read one after the other.
        """
        return bytes * self._bytes / (self._copied if rows is None else self._along_edges(rows))

    def _along_edges(self, rows: RowsRead) -> float:
        (a, b, up), (c, d, along) = _between(self._widths, rows.row_bytes), _between(self._sizes, rows.held_bytes)
        low, high = ((1 - along) * self._logs[width, c] + along * self._logs[width, d] for width in (a, b))
        return math.exp((1 - up) * low + up * high)


_NUMBER_BYTES = 4  # widths are those of float32


def _of_a_thread(found: Sequence[Measurement]) -> float:
    """By as few threads as were measured, for each."""
    fewest = min(found, key=lambda one: int(one.point["threads"]))
    return fewest.median / int(fewest.point["threads"])


def _between(marks: Sequence[float], value: float) -> tuple[float, float, float]:
    """The marks on both sides, and how far the value is from the lower one to the upper, in logarithms."""
    place = bisect.bisect(marks, value)
    if place in (0, len(marks)):
        end = marks[min(place, len(marks) - 1)]
        return end, end, 0.0
    low, high = marks[place - 1 : place + 1]
    return low, high, math.log(value / low) / math.log(high / low)
