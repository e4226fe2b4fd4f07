"""Graph operators on a unit, by several threads: pulls of neighbours' rows for its slices, and sums pushed to neighbours."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np

from dorylax import aligned
from dorylax.ops import row_operators
from dorylax.ops.primitives.operator import Operator
from dorylax.ops.row_loops.rows import RowRange

PIECE_BYTES = 1 << 19
"""Of the rows of sources that a thread gathers, computes and adds at a time, so that they stay in a core's cache."""
_PIECES = 4
"""Parts for each thread: some rows take longer than others."""
_FEWEST_ENTRIES = 16_384


@final
@dataclasses.dataclass(frozen=True, eq=False)
class UnitRows:
    """The in-edges of a unit.

    Attributes:
        offsets: int64 `[R+1]`, from 0 on.
        neighbours: int32 `[entries]`.
        first: number of the first row.
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    first: int

    def between(self, first: int, last: int) -> RowRange:
        """Some of its rows, counted from its first."""
        return RowRange(self.offsets[first : last + 1], self.neighbours, None, self.first + first)

    @cached_property
    def by_source(self) -> tuple[np.ndarray, RowRange]:
        """The edges by their sources.

        The sources that there are, ascending, int32; and a row for each, whose neighbours are the unit's rows, from 0 on,
        and whose edges are the unit's, in order.
        """
        entries = len(self.neighbours)
        # One sort of integers, several times as fast as a stable argsort: sources above, places below.
        bits = max(1, entries.bit_length())
        keys = self.neighbours.astype(np.int64)
        keys <<= bits
        keys |= np.arange(entries, dtype=np.int32)
        keys.sort()
        edges = (keys & ((1 << bits) - 1)).astype(np.int32)
        keys >>= bits
        found = keys.astype(np.int32)
        del keys
        starts = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
        targets = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))[edges]
        return found[starts], RowRange(np.append(starts, entries).astype(np.int64), targets, edges)


class Job(NamedTuple):
    """What is being done with a unit.

    Attributes:
        parts: that threads are at work on, or will be.
        finish: is called with their results, in order, once there are all.
    """

    parts: list[Future[Any]]
    finish: Callable[[list[Any]], None]


def pull(
    operator: Operator, params: Mapping[str, Any], operands: Sequence[np.ndarray], rows: RowRange
) -> list[np.ndarray]:
    """The results of an operator for some rows.

    Args:
        operator: runs over in-edges, or over the out-edges of a graph that is symmetric.
        params: its parameters.
        operands: its dense operands: of neighbours for all vertices, of own rows and edges for these rows.
        rows: of `UnitRows.between`.
    """
    entries = int(rows.offsets[-1] - rows.offsets[0])
    results = _results(operator, operands, len(rows.offsets) - 1, entries)
    return row_operators.run(operator.primitive.name, params, operands, rows, out=results)


@final
class GraphThreads:
    """Runs graph operators.

    Args:
        pool: of `count` threads.
        count: how many.
    """

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self._pool, self._count = pool, count

    def begin(self, work: Callable[[tuple[int, int]], Any], slices: Sequence[tuple[int, int]]) -> list[Future[Any]]:
        """Has work done on slices, in any order."""
        return [self._pool.submit(work, bounds) for bounds in slices]

    def overlapped(self, jobs: Iterable[Job]) -> None:
        """Finishes each unit's job when the next one has begun: no thread waits for the last slice of a unit.

        Args:
            jobs: begun as they are asked for.
        """
        begun: deque[Job] = deque()
        try:
            for job in jobs:
                begun.append(job)
                if len(begun) > 1:
                    self._finish(begun)
            while begun:
                self._finish(begun)
        finally:  # what they work on goes when this returns
            for job in begun:
                for part in job.parts:
                    if not part.cancel():
                        part.exception()

    def _finish(self, begun: deque[Job]) -> None:
        job = begun[0]
        job.finish([part.result() for part in job.parts])
        begun.popleft()

    def push(
        self,
        operator: Operator,
        params: Mapping[str, Any],
        operands: Sequence[np.ndarray],
        rows: UnitRows,
        totals: Sequence[np.ndarray],
    ) -> None:
        """Adds what an operator over out-edges gives for the edges into a unit.

        Each source's edges are summed as those of a row are everywhere, and then added: some sources at a time, which
        decides no bit, as no two threads have the same one.

        Args:
            operator: runs over out-edges.
            params: its parameters.
            operands: its dense operands: of own rows for all vertices, of neighbours and edges for the unit.
            rows: the unit.
            totals: `[V, …]`, added to.
        """
        if not len(rows.neighbours):
            return
        sources, by_source = rows.by_source
        offsets, roles = by_source.offsets, operator.roles(params)
        most = _rows_of_piece([*totals, *(array for array, role in zip(operands, roles, strict=True) if role == "own")])

        def work(begin: int, end: int) -> None:
            for first in range(begin, end, most):
                last = min(first + most, end)
                mine = by_source._replace(offsets=offsets[first : last + 1])
                numbers = sources[first:last]
                given = [
                    array[numbers] if role == "own" else array for array, role in zip(operands, roles, strict=True)
                ]
                results = row_operators.run(operator.primitive.name, params, given, mine)
                for total, result in zip(totals, results, strict=True):
                    total[numbers] += result  # no source is there twice

        self._all([_bound(work, first, last) for first, last in self._pieces(offsets)])

    def _pieces(self, offsets: np.ndarray) -> list[tuple[int, int]]:
        """Rows of about equal numbers of entries."""
        rows, entries = len(offsets) - 1, int(offsets[-1])
        count = max(1, min(self._count * _PIECES, entries // _FEWEST_ENTRIES, rows))
        marks = np.searchsorted(offsets, np.linspace(0, entries, count + 1)[1:-1])
        bounds = np.unique(np.concatenate([[0], marks, [rows]]))
        return [(int(first), int(last)) for first, last in itertools.pairwise(bounds)] or [(0, rows)]

    def _all(self, jobs: Sequence[Callable[[], None]]) -> None:
        if len(jobs) == 1:
            jobs[0]()
            return
        for future in [self._pool.submit(job) for job in jobs]:
            future.result()


def _rows_of_piece(arrays: Sequence[np.ndarray]) -> int:
    return max(1, PIECE_BYTES // max(1, sum(array[:1].nbytes for array in arrays)))


def _results(operator: Operator, operands: Sequence[np.ndarray], rows: int, entries: int) -> list[np.ndarray]:
    return [aligned.empty(shape, dtype) for shape, dtype in operator.result_shapes(operands, rows, entries)]


def _bound(function: Callable[[int, int], None], first: int, last: int) -> Callable[[], None]:
    return lambda: function(first, last)
