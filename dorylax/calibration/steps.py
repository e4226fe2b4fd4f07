"""Measurements that are made in rounds, and how often something is repeated in one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dorylax.cost.measured import Measurement

LEAST, MOST = 5, 1000
"""Repeats in a round, whatever time they take."""


class Quantity(NamedTuple):
    """What is measured.

    Attributes:
        kind: of the measurement.
        at: values of what it depends on, in the order of the kind.
    """

    kind: str
    at: tuple[tuple[str, int | str], ...]


def quantity(kind: str, **at: int | str) -> Quantity:
    """A quantity, by names."""
    return Quantity(kind, tuple(at.items()))


Values = Mapping[Quantity, Sequence[float]]
"""Repeats of one quantity or several, in the unit of its kind."""


class Step(NamedTuple):
    """A part of a round.

    Attributes:
        label: what it is, for a progress bar.
        measure: finds the same quantities in every round.
    """

    label: str
    measure: Callable[[], Values]


def repeated(kind: str, once: Callable[[], float], seconds: float, **at: int | str) -> Values:
    """Repeats, after one that does not count.

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
    return {quantity(kind, **at): values}


def summary(kind: str, values: Sequence[float], **at: int | str) -> Measurement:
    """Median and quartiles.

    Args:
        kind: of the measurement.
        values: of its repeats, two at least.
        at: what the measurement depends on, in the order of its kind.
    """
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measurement(kind, tuple(at.items()), median, low, high, len(values))
