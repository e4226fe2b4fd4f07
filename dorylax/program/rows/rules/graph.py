"""Graph operators (`dorylax.ops.primitives`): where rows meet, and only here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.axes import shown
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed


class _Signature(NamedTuple):
    dense: tuple[Space, ...]
    results: tuple[Space, ...]


_SIGNATURES = {
    "dorylax_gather_sum": _Signature(("vertex",), ("vertex",)),
    "dorylax_gather_weighted": _Signature(("vertex", "edge"), ("vertex",)),
    "dorylax_gather_extremum": _Signature(("vertex",), ("vertex",)),
    "dorylax_select_sum": _Signature(("vertex", "vertex", "vertex"), ("vertex",)),
    "dorylax_collect": _Signature(("edge",), ("vertex",)),
    "dorylax_collect_extremum": _Signature(("edge",), ("vertex",)),
    "dorylax_expand": _Signature(("vertex",), ("edge",)),
    "dorylax_edge_dot": _Signature(("vertex", "vertex"), ("edge",)),
    "dorylax_edge_softmax": _Signature(("edge", "vertex"), ("edge", "vertex")),
    "dorylax_attention": _Signature(("vertex",) * 4, ("vertex",)),
    "dorylax_attention_saving": _Signature(("vertex",) * 4, ("vertex",) * 4),
    "dorylax_attention_tangent": _Signature(("vertex",) * 11, ("vertex",)),
    "dorylax_attention_backward": _Signature(("vertex",) * 9, ("vertex",) * 3),
    "dorylax_degrees": _Signature((), ("vertex",)),
    "dorylax_self_loops": _Signature((), ("vertex",)),
}
_STRUCTURE = 5  # in_offsets, in_neighbours, out_offsets, out_neighbours, out_edges


@rule(*_SIGNATURES)
def graph_operator(op: Operation) -> Sequence[RowType]:
    """Dense operands with one row per vertex or edge on axis 0, then the structure of the graph."""
    signature = _SIGNATURES[op.name]
    if op.scope.inside is not None:
        op.unsupported(
            f"a graph operator inside {op.scope.inside}",
            "Use a Python loop, or jax.lax.scan with a fixed number of steps",
        )
    count = len(signature.dense)
    if len(op.types) != count + _STRUCTURE:
        op.unsupported(f"{op.name} takes {count} arrays and the structure of the graph, got {len(op.types)} operands")
    for kind, space, shape in zip(op.types[:count], signature.dense, op.shapes[:count], strict=True):
        if isinstance(kind, Summed):
            op.refuse_sum()
        if kind != Rows(space, 0):
            op.unsupported(
                f"{op.name} takes one row per {space} on axis 0, got shape {shown(shape)}",
                "Pass an array whose first axis counts "
                f"the graph's {advice.many(space)}, with nothing folded into that axis",
            )
    for kind, shape in zip(op.types[count:], op.shapes[count:], strict=True):
        # Where edges have no int32 ids, an empty array stands in for them (`ops.primitives.base.structure_of`).
        if not isinstance(kind, GraphArray) and not (isinstance(kind, Free) and shape == (0,)):
            op.unsupported(
                f"{op.name} on a graph that is not the model's input: its structure was computed from other values",
                "Call graph operators with the graph that the model is given",
            )
    return [Rows(space, 0) for space in signature.results]
