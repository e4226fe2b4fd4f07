"""How fast memory is, by threads: copies of arrays that no cache holds (STREAM's "copy", McCalpin 1995)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, Values, repeated


def steps(sizes: Sizes, threads: int) -> Iterator[Step]:
    """The measurements, by 1, 2, 4, … threads and by all.

    Args:
        sizes: of the copies.
        threads: how many there can be.
    """
    counts = {2**power for power in range(threads.bit_length())} | {threads}
    for count in sorted(counts):
        yield Step(f"memory, threads: {count}", partial(_measure, sizes, count))


def _measure(sizes: Sizes, threads: int) -> Values:
    pairs = [np.ones((2, sizes.copied_bytes // 8)) for _ in range(threads)]

    def copy(pair: np.ndarray) -> None:
        np.copyto(pair[1], pair[0])

    with ThreadPoolExecutor(threads) as pool:

        def once() -> float:
            begin = time.perf_counter()
            list(pool.map(copy, pairs))
            return sum(pair.nbytes for pair in pairs) / (time.perf_counter() - begin)

        return repeated("memory", once, sizes.seconds, threads=threads)
