"""Steps of a calibration, which runs them in rounds, and the repeats within a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dorylax.cost.measured import Measurement

LEAST, MOST = 5, 1000
"""Bounds of the number of repeats in a round."""


class Quantity(NamedTuple):
    """A measured quantity: a kind of measurement, and values of its parameters in the order of the kind."""

    kind: str
    at: tuple[tuple[str, int | str], ...]


def quantity(kind: str, **at: int | str) -> Quantity:
    """Return a quantity with these parameters."""
    return Quantity(kind, tuple(at.items()))


Values = Mapping[Quantity, Sequence[float]]
"""Repeats by quantity, in the unit of its kind."""


class Step(NamedTuple):
    """A part of a round: its label in a progress bar, and a function that measures the same quantities in every round."""

    label: str
    measure: Callable[[], Values]


def repeated(kind: str, once: Callable[[], float], seconds: float, **at: int | str) -> Values:
    """Repeat a measurement for so many seconds, after one that does not count.

    Args:
        kind: Kind of the measurement.
        once: Measures once, in the kind's unit.
        seconds: Time limit; there are at least `LEAST` and at most `MOST` repeats.
        at: Parameters of the measurement, in the order of its kind.
    """
    once()
    values: list[float] = []
    begin = time.perf_counter()
    while len(values) < LEAST or (len(values) < MOST and time.perf_counter() - begin < seconds):
        values.append(once())
    return {quantity(kind, **at): values}


def summary(kind: str, values: Sequence[float], **at: int | str) -> Measurement:
    """Return median and quartiles of at least two repeats; arguments as for `repeated`."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measurement(kind, tuple(at.items()), median, low, high, len(values))
