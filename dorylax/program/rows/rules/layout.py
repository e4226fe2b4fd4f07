"""Rules for operations that move elements without computing with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType, shown


@rule("broadcast_in_dim")
def broadcast_in_dim(op: Operation) -> Sequence[RowType]:
    """Follow the axis of rows; a value without rows may become the same row for each."""
    if (made := _same_for_each(op)) is not None:
        return [made]
    dimensions = op.params["broadcast_dimensions"]
    return op.follow(lambda rows: int(dimensions[rows.axis]), linear=True)


@rule("iota")
def iota(op: Operation) -> Sequence[RowType]:
    """Refuse counting along an axis of rows: the position of a row is unknown if only some rows are computed."""
    result = op.result_rows()
    if result is None:
        return [Free()]
    if result.axis == op.params["dimension"]:
        op.unsupported(f"counts the {advice.many(result.space)}", advice.NUMBERS)
    return [result]


@rule("dim_as_value")
def dim_as_value(op: Operation) -> Sequence[RowType]:
    """Return a value without rows, for which `tracing.flatten` substitutes an input; refuse it inside loops."""
    if op.scope.inside is not None:
        op.unsupported(
            f"reads the number of vertices or edges inside {op.scope.inside}",
            "Read it outside, as an array (jnp.asarray(x.shape[0])), and use that inside",
        )
    return [Free()]


@rule("reshape")
def reshape(op: Operation) -> Sequence[RowType]:
    """Require that each row's elements stay together: a row is k·A consecutive elements before and k'·B after."""
    if op.params["dimensions"] is not None and op.rows:
        op.unsupported("reshape with a permutation", advice.RAGGED)

    def regroup(rows: Rows) -> Rows:
        result = op.result_rows()
        old, new = op.shapes[0], op.result_shapes[0]
        if result is None or _split_at(old, rows) != _split_at(new, result):
            op.refuse(
                f"reshape from {shown(old)} to {shown(new)} mixes axes with that of {advice.many(rows.space)}",
                advice.RAGGED,
            )
        return result

    return op.follow(regroup, linear=True)


def _split_at(shape: tuple[Any, ...], rows: Rows) -> tuple[int, int]:
    """Return the number of elements before the axis of rows, and the number that belongs to each row there."""
    return math.prod(shape[: rows.axis]), rows.factor * math.prod(shape[rows.axis + 1 :])


@rule("transpose")
def transpose(op: Operation) -> Sequence[RowType]:
    """Follow the axis of rows."""
    permutation = [int(axis) for axis in op.params["permutation"]]
    return op.follow(lambda rows: permutation.index(rows.axis), linear=True)


@rule("squeeze")
def squeeze(op: Operation) -> Sequence[RowType]:
    """Accept removal of axes of size 1, other than the axis of rows."""
    rank = len(op.shapes[0])
    gone = {int(axis) % rank for axis in op.params["dimensions"]}

    def shift(rows: Rows) -> int:
        if rows.axis in gone:
            op.refuse(f"takes the only {rows.space}", advice.places(rows.space))
        return rows.axis - sum(axis < rows.axis for axis in gone)

    return op.follow(shift, linear=True)


@rule("rev")
def rev(op: Operation) -> Sequence[RowType]:
    """Accept reversal of other axes."""
    return op.follow(linear=True, along=op.params["dimensions"], what="reversal along")


@rule("slice")
def slice_(op: Operation) -> Sequence[RowType]:
    """Accept parts of other axes and all of the axis of rows."""
    params = op.params

    def whole(rows: Rows) -> Rows:
        axis = rows.axis
        stride = 1 if params["strides"] is None else params["strides"][axis]
        start, limit = params["start_indices"][axis], op.counts(params["limit_indices"][axis])
        if op.counts(start) is not None or int(start) != 0 or stride != 1 or limit != _first(rows):
            op.refuse(f"slice of the {rows.space} axis", advice.places(rows.space))
        return rows

    return op.follow(whole, linear=True)


@rule("dynamic_slice")
def dynamic_slice(op: Operation) -> Sequence[RowType]:
    """Accept parts of other axes; a slice as long as the axis of rows begins at 0 for any start."""
    op.require_free(range(1, len(op.types)), "indices")

    def whole(rows: Rows) -> Rows:
        if op.counts(op.params["slice_sizes"][rows.axis]) != _first(rows):
            op.refuse(f"indexing of the {rows.space} axis", advice.places(rows.space))
        return rows

    return op.follow(whole, linear=True)


@rule("dynamic_update_slice")
def dynamic_update_slice(op: Operation) -> Sequence[RowType]:
    """Accept replacing a part of other axes, for all rows."""
    op.require_free(range(2, len(op.types)), "indices")
    if op.sums:
        return [op.add_up([0, 1])]
    if op.types[0] != op.types[1]:
        op.refuse(f"replaces a part of the {op.space} axis", advice.places(op.space))
    return [op.types[0]]


@rule("pad")
def pad(op: Operation) -> Sequence[RowType]:
    """Accept padding of other axes."""
    if op.sums:
        return [op.add_up([0, 1])]
    op.require_free([1], "padding values")
    padded = [axis for axis, sizes in enumerate(op.params["padding_config"]) if any(map(int, sizes))]
    return op.follow(linear=False, along=padded, what="padding (or shifting) along")


@rule("concatenate")
def concatenate(op: Operation) -> Sequence[RowType]:
    """Accept joining along another axis."""
    return [_joined(op, int(op.params["dimension"]))]


@rule("stack")
def stack(op: Operation) -> Sequence[RowType]:
    """Accept joining along a new axis."""
    axis = int(op.params["axis"])
    kind = _joined(op, None)
    return [Rows(kind.space, kind.axis + (kind.axis >= axis), kind.factor) if isinstance(kind, Rows) else kind]


def _joined(op: Operation, axis: int | None) -> RowType:
    if op.sums:
        return op.add_up(range(len(op.types)))
    rows = op.rows[0][1]
    if rows.axis == axis and len(op.types) > 1:
        op.refuse(f"joins values along the {rows.space} axis", advice.places(rows.space))
    return op.common_rows()


@rule("split")
def split(op: Operation) -> Sequence[RowType]:
    """Accept cutting of another axis."""
    return op.follow(linear=True, along=[op.params["axis"]], what="cutting along")


@rule("unstack")
def unstack(op: Operation) -> Sequence[RowType]:
    """Accept taking another axis apart."""
    axis = int(op.params["axis"])
    return op.follow(lambda rows: rows.axis - (rows.axis > axis), linear=True, along=[axis], what="cutting along")


@rule("tile")
def tile(op: Operation) -> Sequence[RowType]:
    """Accept repetition along other axes; a value without rows may become the same row for each."""
    if (made := _same_for_each(op)) is not None:
        return [made]
    repeated = [axis for axis, times in enumerate(op.params["reps"]) if op.counts(times) is not None or int(times) != 1]
    return op.follow(linear=True, along=repeated, what="repetition along")


@rule("optimization_barrier", "device_put")
def unchanged(op: Operation) -> Sequence[RowType]:
    """Return the types of the operands."""
    return op.types


def _same_for_each(op: Operation) -> Rows | None:
    """Return the rows that are made from a value without rows; None if the result or the value has none."""
    result = op.result_rows()
    if op.sums and result is not None:
        op.refuse_sum(f"The sum is then used for single {advice.many(result.space)}")
    return None if op.rows else result


def _first(rows: Rows) -> Rows:
    """Return the result of `Operation.counts` for the size of the axis of rows."""
    return Rows(rows.space, 0, rows.factor)
