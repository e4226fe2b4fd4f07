"""Linear operators without weights: `gather_sum` (vertex → vertex), `expand` (vertex → edge), `collect` (edge → vertex).

`gather_sum` of one direction is the transpose of the other; `expand` and `collect` for the same end are transposes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.ops import segment
from dorylax.ops.native import usable
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.operator import OperandSpec, Operator, ResultSpec, per_entry
from dorylax.ops.primitives.structure import DirectedRows, Direction, Structure, flip, rows_of
from dorylax.ops.row_loops.loops import Arrays, Loops
from dorylax.ops.row_loops.rows import Entries


def _gather(x: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.gather(x, rows.offsets, rows.neighbours, "sum")


def _gather_cpu(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(x.dtype):
        return _gather(x, structure, direction=direction)
    return native_calls.reduce("sum", x, rows_of(structure, direction)._replace(edges=None))


def _gather_rows(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce("sum", operands[0], rows, rows.neighbours, results[0])


gather_sum = Operator(
    "gather_sum",
    [OperandSpec("neighbour")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=_gather,
    lower_cpu=_gather_cpu,
    compute_rows=_gather_rows,
    commutes_with_products=True,
    columns_apart=True,
)
gather_sum.def_linear([lambda ct, _x, s, *, direction: gather_sum(ct, s, direction=flip(direction))])
gather_sum.def_batching("width")


# `direction` names the rows of the end in question: "in" for the destination, "out" for the source.


def _expand(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if direction == "out":
        return x[structure.in_neighbours]
    return x[segment.rows(structure.in_offsets, structure.in_neighbours.shape[0])]


def _expand_cpu(x: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(x.dtype):
        return _expand(x, structure, direction=direction)
    return native_calls.expand(x, rows_of(structure, "in"), of="neighbour" if direction == "out" else "row")


def _collect(e: Any, structure: Structure, *, direction: Direction) -> Any:
    rows = rows_of(structure, direction)
    return segment.reduce_entries(e if rows.edges is None else e[rows.edges], rows.offsets, "sum")


def _collect_cpu(e: Any, structure: Structure, *, direction: Direction) -> Any:
    if not usable(e.dtype):
        return _collect(e, structure, direction=direction)
    rows = rows_of(structure, direction)
    if rows.edges is None:
        return native_calls.reduce("sum", e, rows, identity=True)
    return native_calls.reduce("sum", e, DirectedRows(rows.offsets, rows.edges, None))


def _expand_rows(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.expand(operands[0], rows, rows.neighbours if params["direction"] == "out" else None, results[0])


def _collect_rows(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce("sum", operands[0], rows, rows.edges, results[0])


expand = Operator(
    "expand",
    # A destination's row is copied to its adjacent in-edges; a source's row to all entries whose neighbour it is.
    [OperandSpec("neighbour", role_in="own")],
    [ResultSpec(per_edge=True)],
    label="SC",
    flops=per_entry(0),
    lower=_expand,
    lower_cpu=_expand_cpu,
    compute_rows=_expand_rows,
)
collect = Operator(
    "collect",
    [OperandSpec("edge")],
    [ResultSpec()],
    label="GA",
    flops=per_entry(1),
    lower=_collect,
    lower_cpu=_collect_cpu,
    compute_rows=_collect_rows,
)
expand.def_linear([lambda ct, _x, s, *, direction: collect(ct, s, direction=direction)])
collect.def_linear([lambda ct, _e, s, *, direction: expand(ct, s, direction=direction)])
expand.def_batching("width")
collect.def_batching("width")
