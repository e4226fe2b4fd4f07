"""How large the things are that a calibration measures with."""

from __future__ import annotations

import dataclasses
from typing import final

MIB = 2**20


@final
@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes; the defaults take nearly three minutes.

    Attributes:
        seconds: for the repeats of a measurement in a round, about.
        widths: of gathered rows, in float32: hidden layers, classes, and features of the paper's graphs.
        rows_bytes: of all rows that a gather reads of, together: some that a cache holds, and more than it holds.
        pass_bytes: that a gather reads.
        mean_degree: of the rows that a gather sums up.
        products: rows, inner width and columns of products: an interval's rows by a layer's parameters.
        copied_bytes: of the copies of each thread.
        epochs: of a run of the pipeline that shows what a task costs, that count.
        reference_epochs: of those on a graph of some size.
        sent_bytes: of a request with data.
        sent_together: requests with data at a time.
        sent_seconds: for their repeats in a round, about: memory that is new at first makes the first dozen slower.
        asked: requests without data that are timed together.
        file_bytes: of a file.
    """

    seconds: float = 0.2
    widths: tuple[int, ...] = (16, 41, 128, 300, 602)
    rows_bytes: tuple[int, ...] = (2 * MIB, 16 * MIB, 128 * MIB)
    pass_bytes: int = 96 * MIB
    mean_degree: int = 32
    products: tuple[tuple[int, int, int], ...] = ((4096, 602, 128), (4096, 300, 16), (4096, 128, 41), (512, 128, 128))
    copied_bytes: int = 64 * MIB
    epochs: int = 10
    reference_epochs: int = 20
    sent_bytes: int = MIB
    sent_together: int = 16
    sent_seconds: float = 1.0
    asked: int = 50
    file_bytes: int = 64 * MIB
