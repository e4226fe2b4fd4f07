"""Rules for `lax.gather` and `lax.scatter`, which read and write at computed places.

`dorylax.ops.gather` is a graph operator. In both, *windows* are the axes of the result (of the updates) that come from axes
of the operand; its other axes are those of the indices, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType, Summed

_ADDING = frozenset(["scatter-add", "scatter-sub"])


class _Places:
    """The dimension numbers of a gather or a scatter.

    Attributes:
        index_batch: Batch axes of the indices.
        batch: Pairs of batch axes, of the operand and of the indices.
    """

    def __init__(self, op: Operation) -> None:
        numbers = op.params["dimension_numbers"]
        if op.name == "gather":
            windows, dropped, index_batch = (
                numbers.offset_dims,
                numbers.collapsed_slice_dims,
                numbers.start_indices_batching_dims,
            )
            self._rank = len(op.result_shapes[0])
        else:
            windows, dropped, index_batch = (
                numbers.update_window_dims,
                numbers.inserted_window_dims,
                numbers.scatter_indices_batching_dims,
            )
            self._rank = len(op.shapes[2])
        gone = {int(axis) for axis in (*dropped, *numbers.operand_batching_dims)}
        self._windows = sorted(map(int, windows))
        self._kept = [axis for axis in range(len(op.shapes[0])) if axis not in gone]
        self._index_rank = len(op.shapes[1])
        self.index_batch = [int(axis) for axis in index_batch]
        self.batch = list(zip(map(int, numbers.operand_batching_dims), self.index_batch, strict=True))

    def of_operand(self, rows: Rows) -> Rows | None:
        """Return the position of an axis of the operand among the windows; None if no window contains it."""
        if rows.axis not in self._kept:
            return None
        return Rows(rows.space, self._windows[self._kept.index(rows.axis)], rows.factor)

    def of_indices(self, rows: Rows) -> Rows | None:
        """Return the position of an axis of the indices among the other axes; None for the axis of one index."""
        if rows.axis == self._index_rank - 1:
            return None
        others = [axis for axis in range(self._rank) if axis not in self._windows]
        return Rows(rows.space, others[rows.axis], rows.factor)


@rule("gather")
def gather(op: Operation) -> Sequence[RowType]:
    """Accept rows that read the same places in every row, individual places in each row, or a table without rows."""
    operand, indices = op.types
    places = _Places(op)
    if isinstance(indices, Summed):
        op.refuse_sum()
    if isinstance(operand, Summed):
        return [_of_sum(op, operand)]
    if isinstance(operand, Rows) and isinstance(indices, Rows):
        # `take_along_axis(x, idx, axis=1)`: the axis of rows is a batch axis of both.
        if (operand.axis, indices.axis) not in places.batch or operand.factor != indices.factor:
            op.refuse(f"indexing of the {operand.space} axis", advice.places(operand.space))
    elif isinstance(operand, Rows):
        # `x[:, idx]`: slices span the whole axis of rows (and so begin at 0 there, for any index).
        found = places.of_operand(operand)
        whole = Rows(operand.space, 0, operand.factor)
        if found is None or op.counts(op.params["slice_sizes"][operand.axis]) != whole:
            op.refuse(f"indexing of the {operand.space} axis", advice.places(operand.space))
        return [found]
    elif not isinstance(indices, Rows):
        return [Free()]
    elif indices.axis in places.index_batch:  # `table[idx]`: an embedding
        op.unsupported("rows of indices meet an axis of the table that has none")
    found = places.of_indices(indices)
    if found is None:
        op.refuse(f"the number of {advice.many(indices.space)} as one index", advice.places(indices.space))
    return [found]


def _of_sum(op: Operation, operand: Summed) -> Summed:
    """Allow reading parts of a sum; a fill value for indices out of bounds must be 0 or NaN, since parts add up to it."""
    if not isinstance(op.types[1], Free):
        op.refuse_sum()
    fills = GatherScatterMode.from_any(op.params["mode"]) == GatherScatterMode.FILL_OR_DROP
    fill, inexact = op.params["fill_value"], jnp.issubdtype(op.result_dtype, jnp.inexact)
    if fills and not (fill == 0 or (inexact and (fill is None or np.isnan(fill)))):
        op.refuse_sum()
    return operand


@rule("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def scatter(op: Operation) -> Sequence[RowType]:
    """Accept rows that write the same places in every row, or individual places; rows add up in a table that starts at 0."""
    operand, indices, updates = op.types
    places = _Places(op)
    if isinstance(indices, Summed) or (isinstance(operand, Rows) and isinstance(updates, Summed)):
        op.refuse_sum()
    if isinstance(operand, Rows):
        if isinstance(indices, Rows):  # the axis of rows is a batch axis of operand, indices and updates
            allowed = (operand.axis, indices.axis) in places.batch and updates == places.of_indices(indices)
        else:  # `x.at[:, idx].add(y)`: the window spans the whole axis of rows
            found = places.of_operand(operand)
            allowed = found is not None
            if allowed and updates != found:
                op.refuse(f"writes to a part of the {operand.space} axis", advice.places(operand.space))
        if not allowed:
            op.refuse(f"writes to places of the {operand.space} axis", advice.places(operand.space))
        return [operand]
    if isinstance(updates, Rows):
        return [_into_table(op, updates, places)]
    if isinstance(indices, Rows):
        op.unsupported("rows of indices without rows of updates")
    if op.name not in _ADDING:
        op.refuse_sum()
    return [op.add_up([0, 2])]


def _into_table(op: Operation, updates: Rows, places: _Places) -> Summed:
    """`table.at[idx].add(rows)`: a sum over rows for each entry of the table, as in the gradient of an embedding."""
    table, indices, _ = op.types
    if op.name not in _ADDING:
        op.refuse(f"writes of different {advice.many(updates.space)} to one table", advice.reductions(updates.space))
    if not isinstance(indices, Rows) or updates != places.of_indices(indices):
        op.unsupported("rows of updates that do not belong to rows of indices")
    if indices.axis in places.index_batch:
        op.unsupported("rows of indices meet an axis of the table that has none")
    how = f"sum over the {updates.space} axis into a table"
    if isinstance(table, Free) and not table.zero:
        op.refuse(
            f"{how} that does not begin at zero",
            f"Add up into zeros, or into a table that is itself a sum. {advice.TERMS}",
        )
    return op.summed(how)
