"""Rules for reductions, cumulative operations and sorting along axes other than that of rows; and for sums over rows."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.program.jaxpr.global_sum import GLOBAL_SUM
from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType


@rule(
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
    "argmax",
    "argmin",
)
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
    if op.sums:
        op.refuse_sum()
    count = len(op.types) // 2
    op.require_free(range(count, 2 * count), "initial values")
    if not op.rows:
        return [Free()] * len(op.result_shapes)
    rows = _same(op, range(count))
    axes = [int(axis) for axis in op.params["dimensions"]]
    if rows.axis in axes:
        op.refuse(f"reduction over the {rows.space} axis", advice.reductions(rows.space))
    axis = rows.axis - sum(other < rows.axis for other in axes)
    return [Rows(rows.space, axis, rows.factor)] * len(op.result_shapes)


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(op: Operation) -> Sequence[RowType]:
    """Accept cumulative operations along features."""

    def along(rows: Rows) -> int:
        if rows.axis == int(op.params["axis"]):
            op.refuse(f"cumulative operation along the {rows.space} axis", advice.order(rows.space))
        return rows.axis

    return op.follow(along, linear=op.name == "cumsum")


@rule("sort")
def sort(op: Operation) -> Sequence[RowType]:
    """Accept sorting along features; the first operands are the keys of several."""
    if op.sums:
        op.refuse_sum()
    if not op.rows:
        return [Free()] * len(op.result_shapes)
    rows = _same(op, range(len(op.types)))
    if rows.axis == int(op.params["dimension"]):
        op.refuse(f"sort along the {rows.space} axis", advice.order(rows.space))
    return [rows] * len(op.result_shapes)


@rule("top_k")
def top_k(op: Operation) -> Sequence[RowType]:
    """Accept the largest elements along features."""

    def along(rows: Rows) -> int:
        if rows.axis == int(op.params["axis"]) % len(op.shapes[0]):
            op.refuse(f"the largest along the {rows.space} axis", advice.order(rows.space))
        return rows.axis

    return op.follow(along, linear=False)


def _same(op: Operation, operands: range) -> Rows:
    """Return the common type of these operands; refuse different types."""
    rows = op.rows[0][1]
    if any(op.types[k] != rows for k in operands):
        op.unsupported(f"operands of {op.name} have their rows on different axes")
    return rows


@rule(GLOBAL_SUM.name)
def global_sum(op: Operation) -> Sequence[RowType]:
    """Return the type of a completed sum over rows."""
    kind = op.types[0]
    if isinstance(kind, Rows) or (isinstance(kind, Free) and not kind.zero):
        op.unsupported("adds up over intervals what is not a sum over rows")
    return [Free(zero=isinstance(kind, Free))]
