"""`gather_extremum` and `collect_extremum` (largest or smallest), and `select_sum`, from which their derivative is built.

Edges that tie for the extremum share the gradient equally, which is independent of any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp

from dorylax.ops import segment
from dorylax.ops.native import usable
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
    return segment.select_sum(own, other, x, rows.offsets, rows.neighbours)


def _select_cpu(own: Any, other: Any, x: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(own.dtype, other.dtype, x.dtype):
        return _select(own, other, x, structure, direction=direction)
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
    lower_cpu=_select_cpu,
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


def _gather(x: Any, structure: Structure, *, reduce: Extremum) -> Any:
    return segment.gather(x, structure.in_offsets, structure.in_neighbours, reduce)


def _gather_cpu(x: Any, structure: Structure, *, reduce: Extremum) -> Any:
    if not usable(x.dtype):
        return _gather(x, structure, reduce=reduce)
    return native_calls.reduce(reduce, x, rows_of(structure, "in"))


def _gather_rows(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce(params["reduce"], operands[0], rows, rows.neighbours, results[0])


gather_extremum = Operator(
    "gather_extremum",
    [OperandSpec("neighbour")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=_gather,
    lower_cpu=_gather_cpu,
    compute_rows=_gather_rows,
    columns_apart=True,
)


def _gather_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, reduce: Extremum) -> tuple[Any, Any]:
    (x,), (t,) = dense, tangents
    out = gather_extremum(x, structure, reduce=reduce)
    ties = select_sum(out, x, jnp.ones_like(x), structure, direction="in")
    return out, select_sum(out, x, t, structure, direction="in") / jnp.maximum(ties, 1)


gather_extremum.def_jvp(_gather_jvp)
gather_extremum.def_batching("width")


def _collect(e: Any, structure: Structure, *, reduce: Extremum) -> Any:
    return segment.reduce_entries(e, structure.in_offsets, reduce)


def _collect_cpu(e: Any, structure: Structure, *, reduce: Extremum) -> Any:
    if not usable(e.dtype):
        return _collect(e, structure, reduce=reduce)
    return native_calls.reduce(reduce, e, rows_of(structure, "in"), identity=True)


def _collect_rows(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce(params["reduce"], operands[0], rows, rows.edges, results[0])


collect_extremum = Operator(
    "collect_extremum",
    [OperandSpec("edge")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=_collect,
    lower_cpu=_collect_cpu,
    compute_rows=_collect_rows,
)


def _collect_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, reduce: Extremum) -> tuple[Any, Any]:
    (e,), (t,) = dense, tangents
    out = collect_extremum(e, structure, reduce=reduce)
    attained = (e == expand(out, structure, direction="in")).astype(e.dtype)
    ties = collect(attained, structure, direction="in")
    return out, collect(attained * t, structure, direction="in") / jnp.maximum(ties, 1)


collect_extremum.def_jvp(_collect_jvp)
collect_extremum.def_batching("width")
