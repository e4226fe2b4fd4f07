"""Linear operators without weights: `gather_sum` (vertex → vertex), `expand` (vertex → edge), `collect` (edge → vertex).

`gather_sum` of one direction is the transpose of the other; `expand` and `collect` to the same end are each other's.
"""

from __future__ import annotations

from typing import Any

from dorylax.jax_internals import ShapedArray
from dorylax.ops import segment
from dorylax.ops.native import usable
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.base import Direction, Operator, Rows, Structure, flip, num_rows, rows_of


def _gather_abstract(x: Any, structure: Structure, *, direction: Direction) -> Any:
    return ShapedArray((num_rows(structure, direction), *x.shape[1:]), x.dtype)


def _gather(x: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.gather(x, rows.offsets, rows.neighbours, "sum")


def _gather_cpu(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(x.dtype):
        return _gather(x, structure, direction=direction)
    return native_calls.reduce("sum", x, rows_of(structure, direction)._replace(edges=None))


gather_sum = Operator("dorylax_gather_sum", 1, abstract=_gather_abstract, lower=_gather, lower_cpu=_gather_cpu)
gather_sum.def_linear([lambda ct, _x, s, *, direction: gather_sum(ct, s, direction=flip(direction))])
gather_sum.def_batching("width")


# `direction` names the rows that belong to the end in question: "in" for the destination, "out" for the source.


def _expand_abstract(x: Any, structure: Structure, *, direction: Direction) -> Any:
    del direction
    return ShapedArray((structure.in_neighbours.shape[0], *x.shape[1:]), x.dtype)


def _expand(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if direction == "out":
        return x[structure.in_neighbours]
    return x[segment.rows(structure.in_offsets, structure.in_neighbours.shape[0])]


def _expand_cpu(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(x.dtype):
        return _expand(x, structure, direction=direction)
    return native_calls.expand(x, rows_of(structure, "in"), of="neighbour" if direction == "out" else "row")


def _collect_abstract(e: Any, structure: Structure, *, direction: Direction) -> Any:
    return ShapedArray((num_rows(structure, direction), *e.shape[1:]), e.dtype)


def _collect(e: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.reduce_entries(e if rows.edges is None else e[rows.edges], rows.offsets, "sum")


def _collect_cpu(e: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(e.dtype):
        return _collect(e, structure, direction=direction)
    rows = rows_of(structure, direction)
    if rows.edges is None:
        return native_calls.reduce("sum", e, rows, identity=True)
    return native_calls.reduce("sum", e, Rows(rows.offsets, rows.edges, None))


expand = Operator("dorylax_expand", 1, abstract=_expand_abstract, lower=_expand, lower_cpu=_expand_cpu)
collect = Operator("dorylax_collect", 1, abstract=_collect_abstract, lower=_collect, lower_cpu=_collect_cpu)
expand.def_linear([lambda ct, _x, s, *, direction: collect(ct, s, direction=direction)])
collect.def_linear([lambda ct, _e, s, *, direction: expand(ct, s, direction=direction)])
expand.def_batching("width")
collect.def_batching("width")
