"""The two bounds of an epoch whose data are streamed: traversed edges and moved bytes, measured in a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from dorylax.machine import cores
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.streaming.direct import DirectFile, anonymous, room
from dorylax.streaming.graph_steps import UnitRows, pull
from dorylax.streaming.units import Slices

_BLOCK = 32 << 20
_MOST_READ = 512 << 20
_PIECES = 4  # for each core: some take longer than others
_ROWS_BYTES = 256 << 20
_ENTRIES = 1 << 22
_DEGREE = 32
_NEAR = 50_000
_LOCAL = 0.7
_REPEATS = 3


@final
class StreamedSpeed(NamedTuple):
    """Speeds of this machine.

    Attributes:
        edge_seconds: Seconds per edge of a sum over neighbors, with rows in memory.
        disk_bytes_per_second: Bytes per second read past the page cache, one block after the other.
    """

    edge_seconds: float
    disk_bytes_per_second: float

    def seconds(self, edges: int, transferred: int) -> float:
        """The larger of both bounds."""
        return max(edges * self.edge_seconds, transferred / self.disk_bytes_per_second)


def disk_bandwidth(path: Path) -> float:
    """Bytes per second of a file, past the page cache; an OSError is raised if it cannot be read."""
    size = path.stat().st_size
    block = min(_BLOCK, size)
    buffer, file = anonymous(room(block)), DirectFile(path)
    begin, done = time.perf_counter(), 0
    for position in range(0, min(size - block + 1, _MOST_READ), max(1, block)):
        file.read(buffer, position, block)
        done += block
    seconds = time.perf_counter() - begin
    file.close()
    return done / seconds


def gather_seconds(width: int, num_vertices: int) -> float:
    """Seconds per edge in a sum over neighbors, of which 70 % are within 50,000 rows.

    Args:
        width: Number of float32 values in a row.
        num_vertices: V; at most 256 MiB of rows are used.
    """
    held = max(1, min(num_vertices, _ROWS_BYTES // (4 * width)))
    rows = max(1, min(held, _ENTRIES // _DEGREE))
    rng = np.random.default_rng(0)
    first = (held - rows) // 2
    own = np.repeat(np.arange(first, first + rows), _DEGREE)
    near = np.clip(own + rng.integers(-_NEAR, _NEAR, len(own)), 0, held - 1)
    chosen = np.where(rng.random(len(own)) < _LOCAL, near, rng.integers(0, held, len(own))).astype(np.int32)
    neighbours = np.sort(chosen.reshape(rows, _DEGREE), axis=1).ravel()
    unit = UnitRows(np.arange(0, len(own) + 1, _DEGREE, dtype=np.int64), neighbours, first)
    x = anonymous(4 * held * width).view(np.float32).reshape(held, 1, width)
    x[...] = 1
    return min(edge_seconds(x, [unit]) for _ in range(_REPEATS))


def edge_seconds(x: np.ndarray, units: Sequence[UnitRows]) -> float:
    """Seconds per edge in sums of rows of `x` for some units, one after the other."""
    gather = OPERATORS["dorylax_gather_sum"]
    edges, begin = 0, time.perf_counter()
    with ThreadPoolExecutor(cores()) as pool:
        for unit in units:
            entries = max(1, len(unit.neighbours) // (_PIECES * cores()))
            parts = [unit.between(*bounds) for bounds in Slices(len(unit.offsets) - 1, entries).of(unit.offsets)]
            for done in [pool.submit(pull, gather, {"direction": "in"}, [x], part) for part in parts]:
                done.result()
            edges += len(unit.neighbours)
    return (time.perf_counter() - begin) / max(1, edges)
