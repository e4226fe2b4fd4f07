"""Steps of a calibration, which runs them in rounds: their sizes, repeats within a step, and second processes."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, final

from dorylax.cost.measured import Measurement
from dorylax.errors import RunError
from dorylax.processes import Worker

LEAST, MOST = 5, 1000
"""Bounds of the number of repeats in a round."""
_MIB = 2**20


@final
@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements; the defaults take two minutes."""

    seconds: float = 0.2
    """Approximate time for the repeats of a measurement in a round."""
    widths: tuple[int, ...] = (16, 41, 128, 300, 602)
    """Widths of gathered float32 rows: hidden layers, classes, and features of the paper's graphs."""
    rows_bytes: tuple[int, ...] = (2 * _MIB, 16 * _MIB, 128 * _MIB)
    """Bytes of all rows that a gather may read, within and beyond the size of caches."""
    pass_bytes: int = 96 * _MIB
    """Bytes that a gather reads."""
    mean_degree: int = 32
    """Rows that a gather sums up for each result."""
    products: tuple[tuple[int, int, int], ...] = ((4096, 602, 128), (4096, 300, 16), (4096, 128, 41), (512, 128, 128))
    """Rows, inner width and columns of products: an interval's rows by a layer's parameters."""
    copied_bytes: int = 64 * _MIB
    """Bytes of the copies of each thread."""
    epochs: int = 10
    """Epochs of pipelines that compute next to nothing."""
    sent_bytes: int = _MIB
    sent_together: int = 16
    """Bytes of a request with data, and number of such requests at a time."""
    sent_seconds: float = 1.0
    """Approximate time for their repeats in a round: memory that is new makes the first dozen slower."""
    asked: int = 50
    """Requests without data that are timed together."""


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


def rate(amount: int | float, work: Callable[[], object]) -> Callable[[], float]:
    """Return a measurement of the amount per second with which `work` does so much."""

    def once() -> float:
        begin = time.perf_counter()
        work()
        return amount / (time.perf_counter() - begin)

    return once


def summary(kind: str, values: Sequence[float], **at: int | str) -> Measurement:
    """Return median and quartiles of at least two repeats; arguments as for `repeated`."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measurement(kind, tuple(at.items()), median, low, high, len(values))


@contextmanager
def other_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Worker]:
    """Start a process, which ends with the context.

    Args:
        serve: A function at the top of its module; it runs with its end of a pipe and `arguments` until the pipe closes.
        arguments: Picklable arguments.

    Raises:
        RunError: The process has ended while it was in use.
    """
    worker = Worker(serve, *arguments)
    try:
        yield worker
    except RunError:
        raise RunError(
            f"a measuring process ended with exit code {worker.process.returncode} (-9: killed, often for lack of "
            "memory): measure again"
        ) from None
    finally:
        worker.connection.close()
        worker.process.wait()
