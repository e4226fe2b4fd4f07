"""Rules for `lax.scatter`, which writes or adds at computed places."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, Rows, RowType, Summed

_ADDING = frozenset(["scatter-add", "scatter-sub"])


@rule("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def scatter(op: Operation) -> Sequence[RowType]:
    """Accept rows that write the same places in every row, or individual places; rows add up in a table that starts at 0."""
    operand, indices, updates = op.types
    if isinstance(indices, Summed):
        op.refuse_sum()
    if isinstance(operand, Rows):
        if isinstance(updates, Summed):
            op.refuse_sum()
        return [_own_places(op, operand, indices) if isinstance(indices, Rows) else _same_places(op, operand)]
    if isinstance(updates, Rows):
        return [_into_table(op, updates)]
    if isinstance(indices, Rows):
        op.unsupported("rows of indices without rows of updates")
    if isinstance(operand, Summed) or isinstance(updates, Summed):
        if op.name not in _ADDING:
            op.refuse_sum()
        return [op.add_up([0, 2])]
    return [Free()]


def _same_places(op: Operation, operand: Rows) -> Rows:
    """`x.at[:, idx].add(y)`: the window spans the whole axis of rows."""
    numbers, updates = op.params["dimension_numbers"], op.types[2]
    gone = {int(axis) for axis in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)}
    if operand.axis in gone:
        op.refuse(f"writes to places of the {operand.space} axis", advice.places(operand.space))
    kept = [axis for axis in range(len(op.shapes[0])) if axis not in gone]
    window = int(sorted(numbers.update_window_dims)[kept.index(operand.axis)])
    if updates != Rows(operand.space, window, operand.factor):
        op.refuse(f"writes to a part of the {operand.space} axis", advice.places(operand.space))
    return operand


def _own_places(op: Operation, operand: Rows, indices: Rows) -> Rows:
    """The axis of rows is a batch axis of operand, indices and updates."""
    numbers = op.params["dimension_numbers"]
    pairs = list(
        zip(map(int, numbers.operand_batching_dims), map(int, numbers.scatter_indices_batching_dims), strict=True)
    )
    if (operand.axis, indices.axis) not in pairs or op.types[2] != _update_rows(op, indices):
        op.refuse(f"writes to places of the {operand.space} axis", advice.places(operand.space))
    return operand


def _into_table(op: Operation, updates: Rows) -> Summed:
    """`table.at[idx].add(rows)`: a sum over rows for each entry of the table, as in the gradient of an embedding."""
    indices = op.types[1]
    if op.name not in _ADDING:
        op.refuse(f"writes of different {advice.many(updates.space)} to one table", advice.reductions(updates.space))
    if not isinstance(indices, Rows) or updates != _update_rows(op, indices):
        op.unsupported("rows of updates that do not belong to rows of indices")
    if indices.axis in map(int, op.params["dimension_numbers"].scatter_indices_batching_dims):
        op.unsupported("rows of indices meet an axis of the table that has none")
    how = f"sum over the {updates.space} axis into a table"
    table = op.types[0]
    if isinstance(table, Free) and not table.zero:
        op.refuse(
            f"{how} that does not begin at zero",
            f"Add up into zeros, or into a table that is itself a sum. {advice.TERMS}",
        )
    return op.summed(how)


def _update_rows(op: Operation, indices: Rows) -> Rows | None:
    """Return the type of updates for these indices: axes outside the window are those of the indices, in order."""
    if indices.axis == len(op.shapes[1]) - 1:
        return None
    window = {int(axis) for axis in op.params["dimension_numbers"].update_window_dims}
    places = [axis for axis in range(len(op.shapes[2])) if axis not in window]
    return Rows(indices.space, places[indices.axis], indices.factor)
