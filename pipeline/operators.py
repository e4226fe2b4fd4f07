"""One graph operator on one interval: which rows, which operands, and in how many pieces for the graph threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from dorylax import aligned
from dorylax.graph.compressed import Adjacency
from dorylax.hollow import is_hollow
from dorylax.jax_internals import JaxprEqn, Var, size_at, type_of
from dorylax.ops import row_operators
from dorylax.ops.primitives.operator import Role
from dorylax.ops.row_loops.rows import RowRange
from dorylax.pipeline.plan import Step
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.graph_operators import gathered_bytes
from dorylax.program.jaxpr.symbols import row_space

_PIECE_BYTES = 8 * 2**20
"""A piece of a gather reads about so much, so that narrow rows do not make pieces of microseconds."""


Make = Callable[[tuple[int, ...], Any], np.ndarray]


@final
class Piece:
    """Rows `first:last` of an operator's rows, with what it costs.

    Attributes:
        first, last: of the rows.
        flops, bytes: estimates, for the time model.
    """

    __slots__ = ("bytes", "first", "flops", "last")

    def __init__(self, step: Step, first: int, last: int, entries: int) -> None:
        self.first, self.last = first, last
        self.flops, self.bytes = _cost(step.equations[0], last - first, entries)


@functools.lru_cache(maxsize=65536)
def _cost(equation: JaxprEqn, rows: int, entries: int) -> tuple[int, int]:
    """FLOPs and bytes of an operator on so many rows. Kept: pieces of graphs that nobody has are alike."""
    sizes = {"n": rows, "e": entries}
    return equation_flops(equation, sizes), gathered_bytes(equation, sizes)


def row_range(rows: Adjacency, first: int, last: int) -> RowRange:
    """Rows `first:last` of compressed rows, without copying."""
    return RowRange(rows.offsets[first : last + 1], rows.neighbours, rows.edges, first)


def pieces(step: Step, rows: RowRange, chunk: int) -> list[Piece]:
    """Cuts an operator's rows into pieces of about `chunk` edges or more; a row is never cut.

    Args:
        step: the operator.
        rows: all of them.
        chunk: so many edges make a piece, unless they read little.
    """
    offsets = rows.offsets
    count, entries = len(offsets) - 1, int(offsets[-1] - offsets[0])
    whole = Piece(step, 0, count, entries)
    if entries <= chunk or whole.bytes <= _PIECE_BYTES:
        return [whole]
    edges = max(chunk, int(entries * _PIECE_BYTES / whole.bytes))
    marks = np.searchsorted(offsets, offsets[0] + np.arange(edges, entries, edges))
    bounds = np.unique(np.concatenate([[0], marks, [count]]))
    return [
        Piece(step, int(first), int(last), int(offsets[last] - offsets[first]))
        for first, last in itertools.pairwise(bounds)
    ]


def results_for(step: Step, rows: int, entries: int, padded: int, *, empty: Make = aligned.empty) -> list[np.ndarray]:
    """Arrays for an operator's results: rows of vertices padded to `padded`, rows of edges as many as there are.

    Args:
        step: the operator.
        rows: of vertices.
        entries: rows of edges.
        padded: so many rows of vertices at least.
        empty: makes an array, of a shape and a dtype.
    """
    arrays = []
    for var in step.equations[0].outvars:
        aval = type_of(var)
        size = max(rows, padded) if _of_vertices(var) else entries
        arrays.append(empty((size, *row_shape(var)), aval.dtype))
    return arrays


@functools.lru_cache(maxsize=4096)
def row_shape(var: Var) -> tuple[int, ...]:
    """The shape of one row of a value whose rows lie along its first axis."""
    return tuple(int(size_at(dim, {})) for dim in type_of(var).shape[1:])


@functools.lru_cache(maxsize=4096)
def _of_vertices(var: Var) -> bool:
    found = row_space(type_of(var).shape[0])
    return found is not None and found[0] == "vertex"


def work_on(
    step: Step,
    operands: Sequence[tuple[Role, np.ndarray]],
    rows: RowRange,
    piece: Piece,
    results: Sequence[np.ndarray],
) -> Callable[[], None]:
    """What computes one piece of an operator into its place in the results.

    Args:
        step: the operator.
        operands: arrays with what they are read by; "own" and "edge" for all of `rows`.
        rows: all rows.
        piece: which of them.
        results: for all rows; if they are hollow, nothing is computed.
    """
    if all(map(is_hollow, results)):
        return _nothing
    name, params = step.operator, step.params
    first, last = piece.first, piece.last
    begin = int(rows.offsets[0])
    entry, after = int(rows.offsets[first]) - begin, int(rows.offsets[last]) - begin

    def part(role: Role, array: np.ndarray) -> np.ndarray:
        if role == "own":
            return array[first:last]
        return array[entry:after] if role == "edge" and rows.edges is None else array

    def work() -> None:
        mine = RowRange(rows.offsets[first : last + 1], rows.neighbours, rows.edges, rows.first_row + first)
        outputs = zip(step.equations[0].outvars, results, strict=True)
        out = [array[first:last] if _of_vertices(var) else array[entry:after] for var, array in outputs]
        row_operators.run(name, params, [part(role, array) for role, array in operands], mine, out=out)

    return work


def _nothing() -> None:
    """Computes nothing."""


def fill_padding(results: Sequence[np.ndarray], step: Step, rows: int) -> None:
    """Repeats the last real row of vertices in the rows after it, unless they are hollow."""
    for var, array in zip(step.equations[0].outvars, results, strict=True):
        if _of_vertices(var) and len(array) > rows and not is_hollow(array):
            array[rows:] = array[rows - 1]
