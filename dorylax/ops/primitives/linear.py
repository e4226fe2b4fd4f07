"""Operators that are linear in each operand, and the counts of a graph's entries.

- Without weights: `gather_sum` (vertex → vertex), `expand` (vertex → edge), `collect` (edge → vertex). `gather_sum` of one
  direction is the transpose of the other; `expand` and `collect` for the same end are transposes.
- With a weight per edge: `gather_weighted` and its partner `edge_dot`, each the other's derivative.
- Counts: `degrees` and `self_loops`, constants of the graph as primitives, so that a traced model keeps them symbolic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.ops import segment
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.operator import OperandSpec, Operator, ResultSpec, per_entry
from dorylax.ops.primitives.structure import DirectedRows, Direction, Structure, flip, rows_of
from dorylax.ops.row_loops.loops import Arrays, Loops
from dorylax.ops.row_loops.rows import Entries


def _gather(x: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.reduce_entries(x[rows.neighbours], rows.offsets, "sum")


gather_sum = Operator(
    "gather_sum",
    [OperandSpec("neighbour")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=_gather,
    native=lambda x, s, *, direction: native_calls.reduce("sum", x, rows_of(s, direction)._replace(edges=None)),
    compute_rows=lambda loops, _, xs, rows, ys: loops.reduce("sum", xs[0], rows, rows.neighbours, ys[0]),
    commutes_with_products=True,
    columns_apart=True,
)
gather_sum.def_linear([lambda ct, _x, s, *, direction: gather_sum(ct, s, direction=flip(direction))])
gather_sum.def_batching("width")


# `direction` names the rows of the end in question: "in" for the destination, "out" for the source.


def _expand(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if direction == "out":
        return x[structure.in_neighbours]
    return x[segment.rows(structure.in_offsets, structure.in_neighbours.shape[0])]


def _expand_rows(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.expand(operands[0], rows, rows.neighbours if params["direction"] == "out" else None, results[0])


def _collect(e: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.reduce_entries(e if rows.edges is None else e[rows.edges], rows.offsets, "sum")


def _collect_native(e: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    if rows.edges is None:
        return native_calls.reduce("sum", e, rows, identity=True)
    return native_calls.reduce("sum", e, DirectedRows(rows.offsets, rows.edges, None))


expand = Operator(
    "expand",
    # A destination's row is copied to its adjacent in-edges; a source's row to all entries whose neighbour it is.
    [OperandSpec("neighbour", role_in="own")],
    [ResultSpec(per_edge=True)],
    label="SC",
    flops=per_entry(0),
    lower=_expand,
    native=lambda x, s, *, direction: native_calls.expand(x, rows_of(s, "in"), of_neighbour=direction == "out"),
    compute_rows=_expand_rows,
)
collect = Operator(
    "collect",
    [OperandSpec("edge")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=_collect,
    native=_collect_native,
    compute_rows=lambda loops, _, es, rows, ys: loops.reduce("sum", es[0], rows, rows.edges, ys[0]),
)
expand.def_linear([lambda ct, _x, s, *, direction: collect(ct, s, direction=direction)])
collect.def_linear([lambda ct, _e, s, *, direction: expand(ct, s, direction=direction)])
expand.def_batching("width")
collect.def_batching("width")


def _gather_weighted(x: Any, weight: Any, structure: Structure, *, direction: Direction) -> Any:
    rows, wide = rows_of(structure, direction), segment.accumulator(x.dtype)
    ordered = weight if rows.edges is None else weight[rows.edges]
    messages = ordered.astype(wide)[:, :, None] * x.astype(wide)[rows.neighbours]
    return segment.reduce_entries(messages, rows.offsets, "sum").astype(x.dtype)


def _gather_weighted_rows(
    loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays
) -> None:
    loops.reduce("weighted_sum", operands[0], rows, rows.neighbours, results[0], weight=operands[1])


gather_weighted = Operator(
    "gather_weighted",
    [OperandSpec("neighbour"), OperandSpec("edge", axes=2)],
    [ResultSpec()],
    label="GA",
    flops=per_entry(2),
    lower=_gather_weighted,
    native=lambda x, w, s, *, direction: native_calls.reduce("weighted_sum", x, rows_of(s, direction), weight=w),
    compute_rows=_gather_weighted_rows,
    commutes_with_products=True,
    columns_apart=True,
)


def _dot(a: Any, b: Any, structure: Structure) -> Any:
    """Return a[v] · b[u] per edge u → v and head, in order of edge ids: a sampled dense-dense product."""
    wide, row = segment.accumulator(a.dtype), segment.rows(structure.in_offsets, structure.in_neighbours.shape[0])
    product = a.astype(wide)[row] * b.astype(wide)[structure.in_neighbours]
    return product.sum(-1).astype(a.dtype)


edge_dot = Operator(
    "edge_dot",
    [OperandSpec("own"), OperandSpec("neighbour")],
    [ResultSpec(axes=2, per_edge=True)],
    label="SC",
    flops=per_entry(2),
    lower=_dot,
    native=lambda a, b, s: native_calls.dot(a, b, rows_of(s, "in")),
    compute_rows=lambda loops, _, operands, rows, ys: loops.dot(operands[0], operands[1], rows, ys[0]),
)


def _transpose_weight(ct: Any, x: Any, _weight: Any, structure: Structure, *, direction: Direction) -> Any:
    # The row's end of an edge is its destination for "in" and its source for "out".
    return edge_dot(ct, x, structure) if direction == "in" else edge_dot(x, ct, structure)


gather_weighted.def_linear(
    [
        lambda ct, _x, weight, s, *, direction: gather_weighted(ct, weight, s, direction=flip(direction)),
        _transpose_weight,
    ]
)
edge_dot.def_linear(
    [
        lambda ct, _a, b, s: gather_weighted(b, ct, s, direction="in"),
        lambda ct, a, _b, s: gather_weighted(a, ct, s, direction="out"),
    ]
)
gather_weighted.def_batching("heads")
edge_dot.def_batching("heads")


def _degrees_rows(_loops: Loops, _params: Mapping[str, Any], _operands: Arrays, rows: Entries, results: Arrays) -> None:
    results[0][...] = np.diff(rows.offsets)


_COUNT = ResultSpec(axes=1, dtype=lambda _: np.dtype(np.int32))

degrees = Operator(
    "degrees",
    [],
    [_COUNT],
    label="count",
    flops=lambda sizes: sizes.rows,
    lower=lambda s, *, direction: segment.degrees(rows_of(s, direction).offsets),
    compute_rows=_degrees_rows,
)


def _self_loops(structure: Structure) -> Any:
    same = segment.rows(structure.in_offsets, structure.in_neighbours.shape[0]) == structure.in_neighbours
    return segment.reduce_entries(same.astype(jnp.int32), structure.in_offsets, "sum")


def _self_loops_rows(
    _loops: Loops, _params: Mapping[str, Any], _operands: Arrays, rows: Entries, results: Arrays
) -> None:
    row = np.repeat(np.arange(rows.num_rows), np.diff(rows.offsets))
    same = rows.neighbours[rows.first : rows.last] == row + rows.first_row
    results[0][...] = np.bincount(row[same], minlength=rows.num_rows)


self_loops = Operator(
    "self_loops",
    [],
    [_COUNT],
    label="count",
    flops=lambda sizes: 2 * sizes.entries,
    lower=_self_loops,
    compute_rows=_self_loops_rows,
    compares_ends=True,
)

# Integers have no tangents; without operands that could be mapped, there is nothing to batch either.
degrees.def_linear([])
self_loops.def_linear([])
