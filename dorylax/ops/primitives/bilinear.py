"""Operators with a weight per edge: `gather_weighted` and its partner `edge_dot`, each the other's derivative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.ops import segment
from dorylax.ops.native import usable
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.operator import OperandSpec, Operator, ResultSpec, per_entry
from dorylax.ops.primitives.structure import Direction, Structure, flip, rows_of
from dorylax.ops.row_loops.loops import Arrays, Loops
from dorylax.ops.row_loops.rows import Entries


def _gather(x: Any, weight: Any, structure: Structure, *, direction: Direction) -> Any:
    return segment.gather_weighted(x, weight, *rows_of(structure, direction))


def _gather_cpu(x: Any, weight: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(x.dtype, weight.dtype):
        return _gather(x, weight, structure, direction=direction)
    return native_calls.reduce("weighted_sum", x, rows_of(structure, direction), weight=weight)


def _gather_rows(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    x, weight = operands
    loops.reduce("weighted_sum", x, rows, rows.neighbours, results[0], weight=weight)


gather_weighted = Operator(
    "gather_weighted",
    [OperandSpec("neighbour"), OperandSpec("edge", axes=2)],
    [ResultSpec()],
    label="GA",
    flops=per_entry(2),
    lower=_gather,
    lower_cpu=_gather_cpu,
    compute_rows=_gather_rows,
    commutes_with_products=True,
    columns_apart=True,
)


# `edge_dot(a, b)` gives per edge u → v and head the product a[v] · b[u], in order of edge ids.


def _dot(a: Any, b: Any, structure: Structure) -> Any:
    return segment.edge_dot(a, b, structure.in_offsets, structure.in_neighbours)


def _dot_cpu(a: Any, b: Any, structure: Structure) -> Any:
    if not usable(a.dtype, b.dtype):
        return _dot(a, b, structure)
    return native_calls.dot(a, b, rows_of(structure, "in"))


def _dot_rows(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    own, x = operands
    loops.dot(own, x, rows, results[0])


edge_dot = Operator(
    "edge_dot",
    [OperandSpec("own"), OperandSpec("neighbour")],
    [ResultSpec(axes=2, per_edge=True)],
    label="SC",
    flops=per_entry(2),
    lower=_dot,
    lower_cpu=_dot_cpu,
    compute_rows=_dot_rows,
)


def _gather_transpose_weight(ct: Any, x: Any, _weight: Any, structure: Structure, *, direction: Direction) -> Any:
    # The row's end of an edge is its destination for "in" and its source for "out".
    return edge_dot(ct, x, structure) if direction == "in" else edge_dot(x, ct, structure)


gather_weighted.def_linear(
    [
        lambda ct, _x, weight, s, *, direction: gather_weighted(ct, weight, s, direction=flip(direction)),
        _gather_transpose_weight,
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
