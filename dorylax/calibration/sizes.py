"""Sizes of a calibration's measurements."""

from __future__ import annotations

import dataclasses
from typing import final

MIB = 2**20


@final
@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements; the defaults take nearly three minutes."""

    seconds: float = 0.2
    """Approximate time for the repeats of a measurement in a round."""
    widths: tuple[int, ...] = (16, 41, 128, 300, 602)
    """Widths of gathered float32 rows: hidden layers, classes, and features of the paper's graphs."""
    rows_bytes: tuple[int, ...] = (2 * MIB, 16 * MIB, 128 * MIB)
    """Bytes of all rows that a gather may read, within and beyond the size of caches."""
    pass_bytes: int = 96 * MIB
    """Bytes that a gather reads."""
    mean_degree: int = 32
    """Rows that a gather sums up for each result."""
    products: tuple[tuple[int, int, int], ...] = ((4096, 602, 128), (4096, 300, 16), (4096, 128, 41), (512, 128, 128))
    """Rows, inner width and columns of products: an interval's rows by a layer's parameters."""
    copied_bytes: int = 64 * MIB
    """Bytes of the copies of each thread."""
    epochs: int = 10
    reference_epochs: int = 20
    """Epochs that count: of pipelines that compute next to nothing, and of those on a graph of some size."""
    sent_bytes: int = MIB
    sent_together: int = 16
    """Bytes of a request with data, and number of such requests at a time."""
    sent_seconds: float = 1.0
    """Approximate time for their repeats in a round: memory that is new makes the first dozen slower."""
    asked: int = 50
    """Requests without data that are timed together."""
    file_bytes: int = 64 * MIB
