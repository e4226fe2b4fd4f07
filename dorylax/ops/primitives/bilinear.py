"""Operators with a weight per edge: `gather_weighted` and its partner `edge_dot`, each the other's derivative."""

from __future__ import annotations

from typing import Any

from dorylax.jax_internals import ShapedArray
from dorylax.ops import segment
from dorylax.ops.native import usable
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.base import Direction, Operator, Structure, flip, num_rows, rows_of


def _gather_abstract(x: Any, weight: Any, structure: Structure, *, direction: Direction) -> Any:
    del weight
    return ShapedArray((num_rows(structure, direction), *x.shape[1:]), x.dtype)


def _gather(x: Any, weight: Any, structure: Structure, *, direction: Direction) -> Any:
    return segment.gather_weighted(x, weight, *rows_of(structure, direction))


def _gather_cpu(x: Any, weight: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(x.dtype, weight.dtype):
        return _gather(x, weight, structure, direction=direction)
    return native_calls.reduce("weighted_sum", x, rows_of(structure, direction), weight=weight)


gather_weighted = Operator(
    "dorylax_gather_weighted", 2, abstract=_gather_abstract, lower=_gather, lower_cpu=_gather_cpu
)


# `edge_dot(a, b)` gives per edge u → v and head the product a[v] · b[u], in order of edge ids.


def _dot_abstract(a: Any, b: Any, structure: Structure) -> Any:
    del b
    return ShapedArray((structure.in_neighbours.shape[0], a.shape[1]), a.dtype)


def _dot(a: Any, b: Any, structure: Structure) -> Any:
    return segment.edge_dot(a, b, structure.in_offsets, structure.in_neighbours)


def _dot_cpu(a: Any, b: Any, structure: Structure) -> Any:
    if not usable(a.dtype, b.dtype):
        return _dot(a, b, structure)
    return native_calls.dot(a, b, rows_of(structure, "in"))


edge_dot = Operator("dorylax_edge_dot", 2, abstract=_dot_abstract, lower=_dot, lower_cpu=_dot_cpu)


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
