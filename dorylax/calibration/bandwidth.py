"""Bandwidth of memory and disk: gathers along edges, copies beyond all caches (STREAM's "copy", McCalpin 1995), files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dorylax import aligned
from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, Values, repeated
from dorylax.errors import named
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


def files(sizes: Sizes, folder: Path) -> Iterator[Step]:
    """List measurements of a file in a folder (none if it is read-only), written to disk and read past the page cache."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return
    yield Step("disk, write", partial(_file, sizes, folder, "write"))
    if hasattr(os, "posix_fadvise"):
        yield Step("disk, read", partial(_file, sizes, folder, "read"))


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

        def once() -> float:
            begin = time.perf_counter()
            list(pool.map(work, bounds[:-1], bounds[1:]))
            return entries * _NUMBER_BYTES * (width + 1) / (time.perf_counter() - begin)

        return repeated("gather", once, sizes.seconds, width=width, rows_bytes=rows_bytes, threads=threads)


def _copy(sizes: Sizes, threads: int) -> Values:
    pairs = [np.ones((2, sizes.copied_bytes // 8)) for _ in range(threads)]

    def copy(pair: np.ndarray) -> None:
        np.copyto(pair[1], pair[0])

    with ThreadPoolExecutor(threads) as pool:

        def once() -> float:
            begin = time.perf_counter()
            list(pool.map(copy, pairs))
            return sum(pair.nbytes for pair in pairs) / (time.perf_counter() - begin)

        return repeated("memory", once, sizes.seconds, threads=threads)


def _file(sizes: Sizes, folder: Path, way: str) -> Values:
    content = os.urandom(sizes.file_bytes)  # some disks write zeros faster
    with named(folder), TemporaryDirectory(prefix=".dorylax-calibrate-", dir=folder) as name:
        path = Path(name) / "file"

        def write() -> float:
            begin = time.perf_counter()
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            return len(content) / (time.perf_counter() - begin)

        def read() -> float:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                begin = time.perf_counter()
                while file.read(2**20):
                    pass
                return len(content) / (time.perf_counter() - begin)

        write()
        return repeated("disk", write if way == "write" else read, sizes.seconds, way=way)
