"""`gather_extremum` and `collect_extremum` (largest or smallest), and `select_sum`, from which their derivative is built.

Edges that tie for the extremum share the gradient equally, which is independent of any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp

from dorylax.ops import segment
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.linear import collect, expand
from dorylax.ops.primitives.operator import OperandSpec, Operator, ResultSpec, per_entry
from dorylax.ops.primitives.structure import Direction, Structure, flip, rows_of
from dorylax.ops.row_loops.loops import Arrays, Loops
from dorylax.ops.row_loops.rows import Entries

Extremum = Literal["max", "min"]


# `select_sum(own, other, x)` sums x over the neighbours n whose other[n] equals the row's own value, element by element.


def _select(own: Any, other: Any, x: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    same = other[rows.neighbours] == own[segment.rows(rows.offsets, rows.neighbours.shape[0])]
    return segment.reduce_entries(jnp.where(same, x[rows.neighbours], 0).astype(x.dtype), rows.offsets, "sum")


def _select_native(own: Any, other: Any, x: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)._replace(edges=None)
    return native_calls.reduce("select_sum", x, rows, own=own, other=other)


def _select_rows(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    own, other, x = operands
    loops.reduce("select_sum", x, rows, rows.neighbours, results[0], own=own, other=other)


select_sum = Operator(
    "select_sum",
    [OperandSpec("own"), OperandSpec("neighbour"), OperandSpec("neighbour")],
    [ResultSpec(like=2)],
    label="GA",
    flops=per_entry(2),
    lower=_select,
    native=_select_native,
    compute_rows=_select_rows,
    choice_at_destination=True,
    columns_apart=True,
)
select_sum.def_linear(
    [
        None,
        None,
        lambda ct, own, other, _x, s, *, direction: select_sum(other, own, ct, s, direction=flip(direction)),
    ]
)
select_sum.def_batching("width")


gather_extremum = Operator(
    "gather_extremum",
    [OperandSpec("neighbour")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=lambda x, s, *, reduce: segment.reduce_entries(x[s.in_neighbours], s.in_offsets, reduce),
    native=lambda x, s, *, reduce: native_calls.reduce(reduce, x, rows_of(s, "in")),
    compute_rows=lambda loops, params, xs, rows, ys: loops.reduce(
        params["reduce"], xs[0], rows, rows.neighbours, ys[0]
    ),
    columns_apart=True,
)


def _gather_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, reduce: Extremum) -> tuple[Any, Any]:
    (x,), (t,) = dense, tangents
    out = gather_extremum(x, structure, reduce=reduce)
    ties = select_sum(out, x, jnp.ones_like(x), structure, direction="in")
    return out, select_sum(out, x, t, structure, direction="in") / jnp.maximum(ties, 1)


gather_extremum.def_jvp(_gather_jvp)
gather_extremum.def_batching("width")


collect_extremum = Operator(
    "collect_extremum",
    [OperandSpec("edge")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=lambda e, s, *, reduce: segment.reduce_entries(e, s.in_offsets, reduce),
    native=lambda e, s, *, reduce: native_calls.reduce(reduce, e, rows_of(s, "in"), identity=True),
    compute_rows=lambda loops, params, es, rows, ys: loops.reduce(params["reduce"], es[0], rows, rows.edges, ys[0]),
)


def _collect_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, reduce: Extremum) -> tuple[Any, Any]:
    (e,), (t,) = dense, tangents
    out = collect_extremum(e, structure, reduce=reduce)
    attained = (e == expand(out, structure, direction="in")).astype(e.dtype)
    ties = collect(attained, structure, direction="in")
    return out, collect(attained * t, structure, direction="in") / jnp.maximum(ties, 1)


collect_extremum.def_jvp(_collect_jvp)
collect_extremum.def_batching("width")
