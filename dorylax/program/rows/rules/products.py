"""Rules for operations in which rows meet: matrix products, convolutions, graph operators, and completed sums."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.graph_operators import GLOBAL_SUM
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed, shown


@rule("dot_general")
def dot_general(op: Operation) -> Sequence[RowType]:
    """Accept rows as a free axis of one operand or a batch axis of both; contracted in both, they give a sum over rows."""
    if op.sums:
        return [_bilinear_sum(op)]
    contracting, batch = op.params["dimension_numbers"]
    if len(op.rows) == 1:
        ((side, rows),) = op.rows
        if rows.axis in (*contracting[side], *batch[side]):
            op.unsupported(f"rows of one operand of {op.name} meet an axis of the other that has none")
        free = [a for a in range(len(op.shapes[side])) if a not in (*contracting[side], *batch[side])]
        before = len(batch[0])
        if side == 1:
            before += len(op.shapes[0]) - len(contracting[0]) - len(batch[0])
        return [Rows(rows.space, before + free.index(rows.axis), rows.factor)]
    left, right = op.rows[0][1], op.rows[1][1]
    if (left.axis, right.axis) in _pairs(batch):
        return [Rows(left.space, _pairs(batch).index((left.axis, right.axis)), left.factor)]
    if (left.axis, right.axis) in _pairs(contracting):
        return [op.summed(f"product summed over the {left.space} axis")]
    op.refuse(f"product of every {left.space} with every other", advice.pairs(left.space))


def _pairs(axes: tuple[Sequence[int], Sequence[int]]) -> list[tuple[int, int]]:
    return [(int(left), int(right)) for left, right in zip(*axes, strict=True)]


@rule("conv_general_dilated")
def convolution(op: Operation) -> Sequence[RowType]:
    """Accept rows as the batch of a convolution with parameters, or summed over (the gradient with respect to the kernel).

    `out[b, o] = Σ_i in[b, i] * kernel[o, i]` over features i of the input, or over one group of them.
    """
    if op.sums:
        return [_bilinear_sum(op)]
    numbers = op.params["dimension_numbers"]
    (batch, features), outputs = numbers.lhs_spec[:2], numbers.out_spec
    ungrouped = op.params["feature_group_count"] == 1
    if len(op.rows) == 1:
        ((side, rows),) = op.rows
        if side == 0 and rows.axis == batch and op.params["batch_group_count"] == 1:
            return [Rows(rows.space, outputs[0], rows.factor)]
        if side == 1 and rows.axis == numbers.rhs_spec[0] and ungrouped and op.params["batch_group_count"] == 1:
            return [Rows(rows.space, outputs[1], rows.factor)]
    elif op.rows[0][1].axis == features and op.rows[1][1].axis == numbers.rhs_spec[1] and ungrouped:
        return [op.summed(f"convolution summed over the {op.space} axis")]
    op.refuse(f"convolution over the {op.space} axis", advice.order(op.space))


def _bilinear_sum(op: Operation) -> RowType:
    """Return the type of a sum over rows times a value without rows."""
    if len(op.sums) > 1 or op.rows:
        op.refuse_sum()
    return op.sums[0]


def graph_operator(op: Operation) -> Sequence[RowType]:
    """Require dense operands with one row per vertex or edge on axis 0, then the structure of the graph."""
    operator = OPERATORS[op.name]
    if op.scope.inside is not None:
        op.unsupported(
            f"a graph operator inside {op.scope.inside}",
            "Use a Python loop, or jax.lax.scan with a fixed number of steps",
        )
    spaces: list[Space] = ["edge" if operand.role == "edge" else "vertex" for operand in operator.operands]
    count = len(spaces)
    if len(op.types) != count + len(Structure._fields):
        op.unsupported(f"{op.name} takes {count} arrays and the structure of the graph, got {len(op.types)} operands")
    for kind, space, shape in zip(op.types[:count], spaces, op.shapes[:count], strict=True):
        if isinstance(kind, Summed):
            op.refuse_sum()
        if kind != Rows(space, 0):
            op.unsupported(
                f"{op.name} takes one row per {space} on axis 0, got shape {shown(shape)}",
                "Pass an array whose first axis counts "
                f"the graph's {advice.many(space)}, with nothing folded into that axis",
            )
    for kind, shape in zip(op.types[count:], op.shapes[count:], strict=True):
        # For edges without int32 ids, the structure contains an empty array (`ops.primitives.structure.structure_of`).
        if not isinstance(kind, GraphArray) and not (isinstance(kind, Free) and shape == (0,)):
            op.unsupported(
                f"{op.name} on a graph that is not the model's input: its structure was computed from other values",
                "Call graph operators with the graph that the model is given",
            )
    return [Rows("edge" if result.per_edge else "vertex", 0) for result in operator.results]


@rule(GLOBAL_SUM.name)
def global_sum(op: Operation) -> Sequence[RowType]:
    """Return the type of a completed sum over rows."""
    kind = op.types[0]
    if isinstance(kind, Rows) or (isinstance(kind, Free) and not kind.zero):
        op.unsupported("adds up over intervals what is not a sum over rows")
    return [Free(zero=isinstance(kind, Free))]
