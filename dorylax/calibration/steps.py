"""A measurement that is still to be made, and how often it is repeated."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dorylax.cost.measured import Measurement

LEAST, MOST = 5, 1000
"""Repeats of a measurement, whatever time they take."""


class Step(NamedTuple):
    """A measurement to be made.

    Attributes:
        label: what it is, for a progress bar.
        measure: makes it.
    """

    label: str
    measure: Callable[[], Measurement]


def repeated(kind: str, once: Callable[[], float], seconds: float, **at: int | str) -> Measurement:
    """The median of repeats, after one that does not count.

    Args:
        kind: of the measurement.
        once: measures, in the kind's unit.
        seconds: that the repeats may take together; there are at least `LEAST` and at most `MOST`.
        at: what the measurement depends on, in the order of its kind.
    """
    once()
    values: list[float] = []
    begin = time.perf_counter()
    while len(values) < LEAST or (len(values) < MOST and time.perf_counter() - begin < seconds):
        values.append(once())
    return summary(kind, values, **at)


def summary(kind: str, values: Sequence[float], **at: int | str) -> Measurement:
    """Median and quartiles.

    Args:
        kind: of the measurement.
        values: of its repeats, two at least.
        at: what the measurement depends on, in the order of its kind.
    """
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measurement(kind, tuple(at.items()), median, low, high, len(values))
