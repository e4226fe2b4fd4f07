"""Graph operators on one interval: rows, operands, and pieces for the graph threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from dorylax import aligned
from dorylax.abstract_array import is_abstract
from dorylax.graph.compressed import Adjacency
from dorylax.jax_internals import JaxprEqn, Var, size_at, type_of
from dorylax.ops import row_operators
from dorylax.ops.primitives.operator import Role
from dorylax.ops.row_loops.rows import RowRange
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.graph_operators import gathered_bytes
from dorylax.program.jaxpr.symbols import row_space
from dorylax.program.tasks.steps import Step

_PIECE_BYTES = 8 * 2**20
"""Approximate number of bytes read by a piece of a gather. With narrow rows, smaller pieces would last only microseconds."""


Make = Callable[[tuple[int, ...], Any], np.ndarray]


@final
class Piece:
    """Rows `first:last` of an operator, with their cost.

    Attributes:
        first: First row.
        last: Row after the last one.
        flops: Estimated number of operations, for the time model.
        bytes: Estimated number of bytes read, for the time model.
    """

    __slots__ = ("bytes", "first", "flops", "last")

    def __init__(self, step: Step, first: int, last: int, entries: int) -> None:
        self.first, self.last = first, last
        self.flops, self.bytes = _cost(step.equations[0], last - first, entries)


@functools.lru_cache(maxsize=65536)
def _cost(equation: JaxprEqn, rows: int, entries: int) -> tuple[int, int]:
    """Return the FLOPs and bytes of an operator. Cached, because pieces of graphs known only by statistics are alike."""
    sizes = {"n": rows, "e": entries}
    return equation_flops(equation, sizes), gathered_bytes(equation, sizes)


def row_range(rows: Adjacency, first: int, last: int) -> RowRange:
    """Return rows `first:last` of compressed rows without copying."""
    return RowRange(rows.offsets[first : last + 1], rows.neighbours, rows.edges, first)


def pieces(step: Step, rows: RowRange, chunk: int) -> list[Piece]:
    """Cut an operator's rows into pieces of about `chunk` edges or more, without splitting a row.

    Args:
        step: The operator.
        rows: All rows of the operator.
        chunk: Number of edges per piece; pieces that read few bytes have more.
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
    """Allocate arrays for an operator's results, with rows of vertices padded to `padded` and rows of edges unpadded.

    Args:
        step: The operator.
        rows: Number of rows of vertices.
        entries: Number of rows of edges.
        padded: Minimum number of rows of vertices.
        empty: Creates an array of a given shape and dtype.
    """
    arrays = []
    for var in step.equations[0].outvars:
        aval = type_of(var)
        size = max(rows, padded) if _of_vertices(var) else entries
        arrays.append(empty((size, *row_shape(var)), aval.dtype))
    return arrays


@functools.lru_cache(maxsize=4096)
def row_shape(var: Var) -> tuple[int, ...]:
    """Return the shape of one row of a value whose rows are along the first axis."""
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
    """Return a function that computes one piece of an operator and writes it to the results.

    Args:
        step: The operator.
        operands: Arrays with their roles; "own" and "edge" arrays cover all of `rows`.
        rows: All rows of the operator.
        piece: Piece to compute.
        results: Arrays for all rows; for abstract arrays, the function does nothing.
    """
    if all(map(is_abstract, results)):
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
    """Do nothing, for abstract arrays."""


def fill_padding(results: Sequence[np.ndarray], step: Step, rows: int) -> None:
    """Fill the padding after the last real row of vertices with copies of that row, except in abstract arrays."""
    for var, array in zip(step.equations[0].outvars, results, strict=True):
        if _of_vertices(var) and len(array) > rows and not is_abstract(array):
            array[rows:] = array[rows - 1]
