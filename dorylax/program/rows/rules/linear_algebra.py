"""Rules for factorisations, solvers and transforms of matrices, one per row."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType

_MATRIX = [
    "cholesky",
    "eig",
    "eigh",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "qr",
    "schur",
    "svd",
    "tridiagonal",
]


@rule(*_MATRIX)
def matrices(op: Operation) -> Sequence[RowType]:
    """The last two axes are a matrix, and axes before them count matrices, in operands and results."""
    return _batched(op, 2)


@rule("lu_pivots_to_permutation")
def pivots(op: Operation) -> Sequence[RowType]:
    """The last axis is a list of pivots."""
    return _batched(op, 1)


@rule("fft")
def fft(op: Operation) -> Sequence[RowType]:
    """Transforms the last axes."""
    return _batched(op, len(op.params["fft_lengths"]))


@rule("triangular_solve")
def triangular_solve(op: Operation) -> Sequence[RowType]:
    """Accept a system per row, or one system without rows whose right-hand sides are rows."""
    if op.sums:
        op.require_free([0], "a matrix")
        return [op.sums[0]]
    if len(op.rows) == 1 and op.rows[0][0] == 1:
        rows = op.rows[0][1]
        if rows.axis == len(op.shapes[1]) - (1 if op.params["left_side"] else 2):
            return [rows]
    return _batched(op, 2)


def _batched(op: Operation, own: int) -> Sequence[RowType]:
    """Require the same batch axis of rows in all operands; householder_product's second operand is a vector per matrix."""
    if op.sums:
        op.refuse_sum()
    if not op.rows:
        return [Free()] * len(op.result_shapes)
    rows = op.rows[0][1]
    if rows.axis >= len(op.shapes[0]) - own or any(kind != rows for kind in op.types):
        op.refuse(
            f"{op.name} of a matrix that spans {rows.space} rows",
            f"Keep the axis of rows before those of the matrices: one matrix for each {rows.space}, [V, a, b]",
        )
    return [Rows(rows.space, rows.axis, rows.factor)] * len(op.result_shapes)
