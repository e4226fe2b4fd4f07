"""Rule for graph operators (`dorylax.ops.primitives`), the only operations in which rows meet."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.axes import shown
from dorylax.program.rows.rules.base import Operation
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed


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
