"""Rule for `lax.gather`, which reads at computed places; `dorylax.ops.gather` is a graph operator (see `graph.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType, Summed


@rule("gather")
def gather(op: Operation) -> Sequence[RowType]:
    """Accept rows that read the same places in every row, individual places in each row, or a table without rows."""
    operand, indices = op.types
    if isinstance(indices, Summed):
        op.refuse_sum()
    if isinstance(operand, Summed):
        return [_of_sum(op, operand)]
    if isinstance(operand, Rows):
        return [_own_places(op, operand, indices) if isinstance(indices, Rows) else _same_places(op, operand)]
    if isinstance(indices, Rows):
        return [_lookup(op, indices)]
    return [Free()]


def _same_places(op: Operation, operand: Rows) -> Rows:
    """`x[:, idx]`: slices span the whole axis of rows (and so begin at 0 there, for any index)."""
    numbers, sizes = op.params["dimension_numbers"], op.params["slice_sizes"]
    gone = {int(axis) for axis in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)}
    if operand.axis in gone or op.counts(sizes[operand.axis]) != Rows(operand.space, 0, operand.factor):
        op.refuse(f"indexing of the {operand.space} axis", advice.places(operand.space))
    kept = [axis for axis in range(len(op.shapes[0])) if axis not in gone]
    return Rows(operand.space, int(sorted(numbers.offset_dims)[kept.index(operand.axis)]), operand.factor)


def _own_places(op: Operation, operand: Rows, indices: Rows) -> Rows:
    """`take_along_axis(x, idx, axis=1)`: the axis of rows is a batch axis of both."""
    numbers = op.params["dimension_numbers"]
    pairs = list(
        zip(map(int, numbers.operand_batching_dims), map(int, numbers.start_indices_batching_dims), strict=True)
    )
    if (operand.axis, indices.axis) not in pairs or operand.factor != indices.factor:
        op.refuse(f"indexing of the {operand.space} axis", advice.places(operand.space))
    return _at_index_axis(op, indices)


def _lookup(op: Operation, indices: Rows) -> Rows:
    """`table[idx]`: an embedding."""
    if indices.axis in map(int, op.params["dimension_numbers"].start_indices_batching_dims):
        op.unsupported("rows of indices meet an axis of the table that has none")
    return _at_index_axis(op, indices)


def _at_index_axis(op: Operation, indices: Rows) -> Rows:
    """Return the position of an axis of the indices in the result, among the axes that are not offsets, in order."""
    if indices.axis == len(op.shapes[1]) - 1:
        op.refuse(f"the number of {advice.many(indices.space)} as one index", advice.places(indices.space))
    offsets = {int(axis) for axis in op.params["dimension_numbers"].offset_dims}
    batch = [axis for axis in range(len(op.result_shapes[0])) if axis not in offsets]
    return Rows(indices.space, batch[indices.axis], indices.factor)


def _of_sum(op: Operation, operand: Summed) -> Summed:
    """Allow reading parts of a sum; a fill value for indices out of bounds must be 0 or NaN, since parts add up to it."""
    if not isinstance(op.types[1], Free):
        op.refuse_sum()
    fills = GatherScatterMode.from_any(op.params["mode"]) == GatherScatterMode.FILL_OR_DROP
    fill, inexact = op.params["fill_value"], jnp.issubdtype(op.result_dtype, jnp.inexact)
    if fills and not (fill == 0 or (inexact and (fill is None or np.isnan(fill)))):
        op.refuse_sum()
    return operand
