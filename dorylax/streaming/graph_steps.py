"""Graph operators on a unit, in several threads: pulls of neighbours' rows for its slices, and sums pushed to neighbours."""

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
"""Bytes of sources' rows that a thread gathers, computes and adds at a time, so that they stay in a core's cache."""
_PIECES = 4
"""Parts per thread; several, since some rows take longer than others."""
_FEWEST_ENTRIES = 16_384


@final
@dataclasses.dataclass(frozen=True, eq=False)
class UnitRows:
    """The in-edges of a unit.

    Attributes:
        offsets: int64 `[R+1]`, starting at 0.
        neighbours: int32 `[entries]`.
        first: Number of the first row.
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    first: int

    def between(self, first: int, last: int) -> RowRange:
        """Return some of its rows, counted from its first."""
        return RowRange(self.offsets[first : last + 1], self.neighbours, None, self.first + first)

    @cached_property
    def by_source(self) -> tuple[np.ndarray, RowRange]:
        """The edges by source: the distinct sources, ascending, int32, and a row for each.

        The neighbours of these rows are the unit's rows, counted from 0, and their edges are the unit's edges, in order.
        """
        entries = len(self.neighbours)
        # One sort of integers is several times as fast as a stable argsort: sources in the high bits, positions in the low.
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


def encoded(parts: Sequence[RowRange]) -> np.ndarray:
    """Encode selected edges of a unit for a file, int32 `[R + entries]`: lengths of rows, then neighbours.

    Args:
        parts: Rows of the unit in order, as `kept` returns them.
    """
    lengths = [np.diff(part.offsets).astype(np.int32) for part in parts]
    return np.concatenate([np.zeros(0, np.int32), *lengths, *(part.neighbours for part in parts)])


def decoded(piece: np.ndarray, count: int, first: int) -> UnitRows:
    """Decode the result of `encoded`.

    Args:
        piece: The encoded edges.
        count: R.
        first: Number of the first row.
    """
    return UnitRows(np.append(0, np.cumsum(piece[:count], dtype=np.int64)), piece[count:], first)


class Job(NamedTuple):
    """Work in progress on a unit.

    Attributes:
        parts: Futures of the work on its slices.
        finish: Called with their results, in order, when all are done.
    """

    parts: list[Future[Any]]
    finish: Callable[[list[Any]], None]


def pull(
    operator: Operator, params: Mapping[str, Any], operands: Sequence[np.ndarray], rows: RowRange
) -> list[np.ndarray]:
    """Return the results of an operator for some rows.

    Args:
        operator: Operator over in-edges, or over the out-edges of a symmetric graph.
        params: Its parameters.
        operands: Its dense operands: neighbours' values for all vertices, own and edge values for these rows.
        rows: Rows from `UnitRows.between`.
    """
    entries = int(rows.offsets[-1] - rows.offsets[0])
    shapes = operator.result_shapes(operands, len(rows.offsets) - 1, entries)
    results = [aligned.empty(shape, dtype) for shape, dtype in shapes]
    return row_operators.run(operator.primitive.name, params, operands, rows, out=results)


@final
class GraphThreads:
    """Runs graph operators in threads.

    Args:
        pool: Pool of `count` threads.
        count: Number of threads.
    """

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self._pool, self._count = pool, count

    def begin(self, work: Callable[[tuple[int, int]], Any], slices: Sequence[tuple[int, int]]) -> list[Future[Any]]:
        """Submit work on slices, in any order."""
        return [self._pool.submit(work, bounds) for bounds in slices]

    def overlapped(self, jobs: Iterable[Job]) -> None:
        """Finish each unit's job after the next one has begun, so that no thread waits for the last slice of a unit.

        Args:
            jobs: Iterator that begins each job when advanced.
        """
        begun: deque[Job] = deque()
        try:
            for job in jobs:
                begun.append(job)
                if len(begun) > 1:
                    self._finish(begun)
            while begun:
                self._finish(begun)
        finally:  # wait, since the threads' data are freed when this returns
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
        """Add the results of an operator over out-edges, for the edges into a unit, to totals at the sources.

        Each source's edges are summed in row order and then added to its total. Threads work on disjoint sources, so their
        number does not affect the bits.

        Args:
            operator: Operator over out-edges.
            params: Its parameters.
            operands: Its dense operands: own values for all vertices, neighbours' and edge values for the unit.
            rows: The unit.
            totals: Totals `[V, …]` to add to.
        """
        if not len(rows.neighbours):
            return
        sources, by_source = rows.by_source
        offsets, roles = by_source.offsets, operator.roles(params)
        of_sources = [*totals, *(array for array, role in zip(operands, roles, strict=True) if role == "own")]
        most = max(1, PIECE_BYTES // max(1, sum(array[:1].nbytes for array in of_sources)))

        def work(bounds: tuple[int, int]) -> None:
            for first in range(*bounds, most):
                last = min(first + most, bounds[1])
                mine = by_source._replace(offsets=offsets[first : last + 1])
                numbers = sources[first:last]
                given = [
                    array[numbers] if role == "own" else array for array, role in zip(operands, roles, strict=True)
                ]
                results = row_operators.run(operator.primitive.name, params, given, mine)
                for total, result in zip(totals, results, strict=True):
                    total[numbers] += result  # sources are distinct

        pieces = self._pieces(offsets)
        if len(pieces) == 1:
            work(pieces[0])
            return
        for part in self.begin(work, pieces):
            part.result()

    def _pieces(self, offsets: np.ndarray) -> list[tuple[int, int]]:
        """Split rows into ranges with about equal numbers of entries."""
        rows, entries = len(offsets) - 1, int(offsets[-1])
        count = max(1, min(self._count * _PIECES, entries // _FEWEST_ENTRIES, rows))
        marks = np.searchsorted(offsets, np.linspace(0, entries, count + 1)[1:-1])
        bounds = np.unique(np.concatenate([[0], marks, [rows]]))
        return [(int(first), int(last)) for first, last in itertools.pairwise(bounds)] or [(0, rows)]
