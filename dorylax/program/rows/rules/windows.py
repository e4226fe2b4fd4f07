"""Rules for sliding windows: pooling and its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType


@rule("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min")
def reduce_window(op: Operation) -> Sequence[RowType]:
    """Accept windows of width 1 along rows; the general form has initial values as its last operands."""
    if op.name == "reduce_window":
        count = len(op.types) // 2
        op.require_free(range(count, 2 * count), "initial values")
    return [_windows(op)] * len(op.result_shapes)


@rule("select_and_scatter_add", "select_and_gather_add")
def select_and_add(op: Operation) -> Sequence[RowType]:
    """Accept derivatives of max pooling whose operands have the same rows."""
    return [_windows(op)]


def _windows(op: Operation) -> RowType:
    if op.sums:
        op.refuse_sum()
    if not op.rows:
        return Free()
    rows = op.rows[0][1]
    if any(kind != rows for kind in op.types if not (isinstance(kind, Free) and op.name == "reduce_window")):
        op.unsupported(f"operands of {op.name} have their rows on different axes")
    one: dict[str, Any] = {
        "window_dimensions": 1,
        "window_strides": 1,
        "padding": (0, 0),
        "base_dilation": 1,
        "window_dilation": 1,
    }
    for name, neutral in one.items():
        values = op.params.get(name)
        if values is not None and _plain(values[rows.axis]) != neutral:
            op.refuse(f"a window over the {rows.space} axis", advice.order(rows.space))
    return Rows(rows.space, rows.axis, rows.factor)


def _plain(value: Any) -> Any:
    return tuple(int(part) for part in value) if isinstance(value, tuple | list) else int(value)
