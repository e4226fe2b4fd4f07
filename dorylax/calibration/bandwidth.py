"""Bandwidth of memory: gathers along edges, and copies beyond all caches (STREAM's "copy", McCalpin 1995)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from dorylax import aligned
from dorylax.calibration.steps import Sizes, Step, Values, rate, repeated
from dorylax.ops import row_operators
from dorylax.ops.row_loops.rows import RowRange

_NUMBER_BYTES = 4  # of a float32, and of an index


def gathers(sizes: Sizes, threads: int) -> Iterator[Step]:
    """List measurements of sums of neighbors' rows, by one thread and by `threads`, as graph tasks of a pipeline do them."""
    for width in sizes.widths:
        for rows_bytes in sizes.rows_bytes:
            for count in sorted({1, threads}):
                label = f"gather, width {width}, {rows_bytes / 2**20:g} MiB of rows, threads: {count}"
                yield Step(label, partial(_gather, sizes, width, rows_bytes, count))


def copies(sizes: Sizes, threads: int) -> Iterator[Step]:
    """List measurements of copies by 1, 2, 4, … and `threads` threads."""
    counts = {2**power for power in range(threads.bit_length())} | {threads}
    for count in sorted(counts):
        yield Step(f"memory, threads: {count}", partial(_copy, sizes, count))


def _gather(sizes: Sizes, width: int, rows_bytes: int, threads: int) -> Values:
    """Sum rows at random places: no prefetcher can predict a neighbor."""
    held = max(1, rows_bytes // (_NUMBER_BYTES * width))
    num_rows = max(threads, sizes.pass_bytes // (_NUMBER_BYTES * width * sizes.mean_degree))
    entries = num_rows * sizes.mean_degree
    rng = np.random.default_rng(0)
    neighbours = rng.integers(0, held, entries, dtype=np.int32)
    offsets = np.arange(0, entries + 1, sizes.mean_degree, dtype=np.int64)
    x = aligned.empty((held, 1, width), np.float32)
    x[:] = 1
    out = aligned.empty((num_rows, 1, width), np.float32)
    out[:] = 0  # or the first repeat would clear pages
    bounds = [num_rows * part // threads for part in range(threads + 1)]

    def work(first: int, last: int) -> None:
        rows = RowRange(offsets[first : last + 1], neighbours)
        row_operators.run("dorylax_gather_sum", {"direction": "in"}, [x], rows, out=[out[first:last]])

    with ThreadPoolExecutor(threads) as pool:
        once = rate(entries * _NUMBER_BYTES * (width + 1), lambda: list(pool.map(work, bounds[:-1], bounds[1:])))
        return repeated("gather", once, sizes.seconds, width=width, rows_bytes=rows_bytes, threads=threads)


def _copy(sizes: Sizes, threads: int) -> Values:
    pairs = [np.ones((2, sizes.copied_bytes // 8)) for _ in range(threads)]

    def copy(pair: np.ndarray) -> None:
        np.copyto(pair[1], pair[0])

    with ThreadPoolExecutor(threads) as pool:
        once = rate(sum(pair.nbytes for pair in pairs), lambda: list(pool.map(copy, pairs)))
        return repeated("memory", once, sizes.seconds, threads=threads)
