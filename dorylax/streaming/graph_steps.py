"""Graph operators on a unit, by several threads: pulls of neighbours' rows for its slices, and sums pushed to neighbours."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, final

import numpy as np

from dorylax import aligned
from dorylax.ops import row_operators
from dorylax.ops.primitives.operator import Operator, Role
from dorylax.ops.row_loops.rows import RowRange

_PIECES = 4
"""Pieces for each thread: some rows take longer than others."""
_FEWEST_ENTRIES = 16_384


class UnitRows(NamedTuple):
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

        The unit's edges are put in order of their sources first, so that each source's are summed as rows are everywhere.

        Args:
            operator: runs over out-edges.
            params: its parameters.
            operands: its dense operands: of own rows for all vertices, of neighbours and edges for the unit.
            rows: the unit.
            totals: `[V, …]`, added to.
        """
        if not len(rows.neighbours):
            return
        sources, by_source = transposed(rows)
        roles = operator.roles(params)
        own = [array[sources] if role == "own" else array for role, array in zip(roles, operands, strict=True)]
        results = _results(operator, own, len(sources), len(rows.neighbours))
        self._run(operator, params, own, by_source, results)
        for total, result in zip(totals, results, strict=True):
            bounds = np.linspace(0, len(sources), self._count + 1).astype(np.int64)

            def add(first: int, last: int, total: np.ndarray = total, result: np.ndarray = result) -> None:
                total[sources[first:last]] += result[first:last]  # no source is there twice

            self._all([_bound(add, int(first), int(last)) for first, last in itertools.pairwise(bounds)])

    def _run(
        self,
        operator: Operator,
        params: Mapping[str, Any],
        operands: Sequence[np.ndarray],
        rows: RowRange,
        results: Sequence[np.ndarray],
    ) -> None:
        offsets, roles = rows.offsets, operator.roles(params)
        per_edge = [result.per_edge for result in operator.results]

        def part(role: Role, array: np.ndarray, first: int, last: int) -> np.ndarray:
            if role == "own":
                return array[first:last]
            return array[offsets[first] : offsets[last]] if role == "edge" and rows.edges is None else array

        def work(first: int, last: int) -> None:
            mine = RowRange(offsets[first : last + 1], rows.neighbours, rows.edges, rows.first_row + first)
            given = [part(role, array, first, last) for role, array in zip(roles, operands, strict=True)]
            out = [
                array[offsets[first] : offsets[last]] if by_edge else array[first:last]
                for by_edge, array in zip(per_edge, results, strict=True)
            ]
            row_operators.run(operator.primitive.name, params, given, mine, out=out)

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


def transposed(rows: UnitRows) -> tuple[np.ndarray, RowRange]:
    """The edges into a unit by their sources.

    Returns:
        The sources that there are, ascending, int32; and a row for each, whose neighbours are the unit's rows, from 0 on,
        and whose edges are the unit's, in order.
    """
    entries = len(rows.neighbours)
    # One sort of integers, several times as fast as a stable argsort: sources above, places below.
    bits = max(1, entries.bit_length())
    keys = (rows.neighbours.astype(np.int64) << bits) | np.arange(entries, dtype=np.int64)
    keys.sort()
    edges = (keys & ((1 << bits) - 1)).astype(np.int32)
    found = (keys >> bits).astype(np.int32)
    starts = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
    targets = np.repeat(np.arange(len(rows.offsets) - 1, dtype=np.int32), np.diff(rows.offsets))[edges]
    return found[starts], RowRange(np.append(starts, entries).astype(np.int64), targets, edges)


def _results(operator: Operator, operands: Sequence[np.ndarray], rows: int, entries: int) -> list[np.ndarray]:
    return [aligned.empty(shape, dtype) for shape, dtype in operator.result_shapes(operands, rows, entries)]


def _bound(function: Callable[[int, int], None], first: int, last: int) -> Callable[[], None]:
    return lambda: function(first, last)
