"""Rules for operations along axes other than that of rows: reductions, windows, sorting, and matrices, one per row.

Sums are the only reductions over rows, since parts of them can be computed separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Rows, RowType

_REDUCTIONS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin"
_MATRICES = "cholesky eig eigh geqrf hessenberg householder_product lu qr schur svd tridiagonal"


@rule(*_REDUCTIONS.split())
def reduce(op: Operation) -> Sequence[RowType]:
    """Accept reductions over features; over rows, only sums, which can be computed in parts."""
    axes = [int(axis) for axis in op.params["axes"]]
    for _, rows in op.rows:
        if rows.axis in axes:
            how = f"reduction over the {rows.space} axis"
            if op.name != "reduce_sum":
                op.refuse(how, advice.reductions(rows.space))
            return [op.summed(how)]
    return op.follow(lambda rows: rows.axis - sum(axis < rows.axis for axis in axes), linear=op.name == "reduce_sum")


@rule("reduce")
def reduce_with(op: Operation) -> Sequence[RowType]:
    """Accept reductions over features by a function of scalars; operands precede initial values."""
    count = len(op.types) // 2
    op.require_free(range(count, 2 * count), "initial values")
    rows = op.common_rows(count)
    axes = [int(axis) for axis in op.params["dimensions"]]
    if rows.axis in axes:
        op.refuse(f"reduction over the {rows.space} axis", advice.reductions(rows.space))
    return op.all_results(Rows(rows.space, rows.axis - sum(other < rows.axis for other in axes), rows.factor))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(op: Operation) -> Sequence[RowType]:
    """Accept cumulative operations along features."""
    return op.follow(linear=op.name == "cumsum", along=[op.params["axis"]], what="cumulative operation along")


@rule("sort")
def sort(op: Operation) -> Sequence[RowType]:
    """Accept sorting along features; the first operands are the keys of several."""
    rows = op.common_rows()
    op.refuse_along(rows, [op.params["dimension"]], "sort along")
    return op.all_results(rows)


@rule("top_k")
def top_k(op: Operation) -> Sequence[RowType]:
    """Accept the largest elements along features."""
    return op.follow(linear=False, along=[op.params["axis"] % len(op.shapes[0])], what="the largest along")


_NEUTRAL: dict[str, Any] = {
    "window_dimensions": 1,
    "window_strides": 1,
    "padding": (0, 0),
    "base_dilation": 1,
    "window_dilation": 1,
}


@rule(
    "reduce_window",
    "reduce_window_sum",
    "reduce_window_max",
    "reduce_window_min",
    "select_and_scatter_add",
    "select_and_gather_add",
)
def windows(op: Operation) -> Sequence[RowType]:
    """Accept pooling, and derivatives of max pooling, by windows of width 1 along rows.

    The general form has initial values as its last operands.
    """
    count = len(op.types)
    if op.name == "reduce_window":
        count //= 2
        op.require_free(range(count, 2 * count), "initial values")
    rows = op.common_rows(count)
    for name, neutral in _NEUTRAL.items():
        values = op.params.get(name)
        if values is not None and _plain(values[rows.axis]) != neutral:
            op.refuse(f"a window over the {rows.space} axis", advice.order(rows.space))
    return op.all_results(rows)


def _plain(value: Any) -> Any:
    return tuple(int(part) for part in value) if isinstance(value, tuple | list) else int(value)


@rule(*_MATRICES.split(), "lu_pivots_to_permutation", "fft")
def matrices(op: Operation) -> Sequence[RowType]:
    """Accept a matrix (a list of pivots, axes to transform) per row: last axes of operands and results.

    Axes before them count matrices; the second operand of householder_product is a vector per matrix.
    """
    own = {"lu_pivots_to_permutation": 1, "fft": len(op.params.get("fft_lengths", ()))}.get(op.name, 2)
    if op.sums:
        op.refuse_sum()
    rows = op.rows[0][1]
    if rows.axis >= len(op.shapes[0]) - own or any(kind != rows for kind in op.types):
        op.refuse(
            f"{op.name} of a matrix that spans {rows.space} rows",
            f"Keep the axis of rows before those of the matrices: one matrix for each {rows.space}, [V, a, b]",
        )
    return op.all_results(rows)


@rule("triangular_solve")
def triangular_solve(op: Operation) -> Sequence[RowType]:
    """Accept a system per row, or one system without rows whose right-hand sides are rows."""
    if op.sums:
        op.require_free([0], "a matrix")
        return [op.sums[0]]
    side, rows = op.rows[0]
    if side == 1 and rows.axis == len(op.shapes[1]) - (1 if op.params["left_side"] else 2):
        return [rows]
    return matrices(op)
