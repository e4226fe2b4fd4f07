"""`gather_extremum` and `collect_extremum` (largest or smallest), and `select_sum`, which their derivative is made of.

Where several edges attain the extremum they share the gradient equally: a choice that depends on no order.
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from dorylax.jax_internals import ShapedArray
from dorylax.ops import segment
from dorylax.ops.native import usable
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.base import Direction, Operator, Structure, flip, num_rows, rows_of
from dorylax.ops.primitives.linear import collect, expand

Extremum = Literal["max", "min"]


# `select_sum(own, other, x)` sums x over the neighbours n whose other[n] equals the row's own value, element by element.


def _select_abstract(own: Any, other: Any, x: Any, structure: Structure, *, direction: Direction) -> Any:
    del own, other
    return ShapedArray((num_rows(structure, direction), *x.shape[1:]), x.dtype)


def _select(own: Any, other: Any, x: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.select_sum(own, other, x, rows.offsets, rows.neighbours)


def _select_cpu(own: Any, other: Any, x: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(own.dtype, other.dtype, x.dtype):
        return _select(own, other, x, structure, direction=direction)
    rows = rows_of(structure, direction)._replace(edges=None)
    return native_calls.reduce("select_sum", x, rows, own=own, other=other)


select_sum = Operator("dorylax_select_sum", 3, abstract=_select_abstract, lower=_select, lower_cpu=_select_cpu)
select_sum.def_linear(
    [
        None,
        None,
        lambda ct, own, other, _x, s, *, direction: select_sum(other, own, ct, s, direction=flip(direction)),
    ]
)
select_sum.def_batching("width")


def _gather_abstract(x: Any, structure: Structure, *, reduce: Extremum) -> Any:
    del reduce
    return ShapedArray((num_rows(structure, "in"), *x.shape[1:]), x.dtype)


def _gather(x: Any, structure: Structure, *, reduce: Extremum) -> Any:
    return segment.gather(x, structure.in_offsets, structure.in_neighbours, reduce)


def _gather_cpu(x: Any, structure: Structure, *, reduce: Extremum) -> Any:
    if not usable(x.dtype):
        return _gather(x, structure, reduce=reduce)
    return native_calls.reduce(reduce, x, rows_of(structure, "in"))


gather_extremum = Operator(
    "dorylax_gather_extremum", 1, abstract=_gather_abstract, lower=_gather, lower_cpu=_gather_cpu
)


def _gather_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, reduce: Extremum) -> tuple[Any, Any]:
    (x,), (t,) = dense, tangents
    out = gather_extremum(x, structure, reduce=reduce)
    ties = select_sum(out, x, jnp.ones_like(x), structure, direction="in")
    return out, select_sum(out, x, t, structure, direction="in") / jnp.maximum(ties, 1)


gather_extremum.def_jvp(_gather_jvp)
gather_extremum.def_batching("width")


def _collect_abstract(e: Any, structure: Structure, *, reduce: Extremum) -> Any:
    del reduce
    return ShapedArray((num_rows(structure, "in"), *e.shape[1:]), e.dtype)


def _collect(e: Any, structure: Structure, *, reduce: Extremum) -> Any:
    return segment.reduce_entries(e, structure.in_offsets, reduce)


def _collect_cpu(e: Any, structure: Structure, *, reduce: Extremum) -> Any:
    if not usable(e.dtype):
        return _collect(e, structure, reduce=reduce)
    return native_calls.reduce(reduce, e, rows_of(structure, "in"), identity=True)


collect_extremum = Operator(
    "dorylax_collect_extremum", 1, abstract=_collect_abstract, lower=_collect, lower_cpu=_collect_cpu
)


def _collect_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, reduce: Extremum) -> tuple[Any, Any]:
    (e,), (t,) = dense, tangents
    out = collect_extremum(e, structure, reduce=reduce)
    attained = (e == expand(out, structure, direction="in")).astype(e.dtype)
    ties = collect(attained, structure, direction="in")
    return out, collect(attained * t, structure, direction="in") / jnp.maximum(ties, 1)


collect_extremum.def_jvp(_collect_jvp)
collect_extremum.def_batching("width")
