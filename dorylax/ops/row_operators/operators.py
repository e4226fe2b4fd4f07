"""What each operator is made of: its operands' axes, its results, and the loops over entries that compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dorylax.ops.row_operators.loops import Loops
from dorylax.ops.row_operators.numpy_loops import wide
from dorylax.ops.row_operators.rows import Entries

Arrays = list[np.ndarray]
Template = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of a result."""


class Operator(NamedTuple):
    """One primitive.

    Attributes:
        axes: the number of axes of each operand: 3 for values `[…, H, F]`, 2 for weights and scores `[…, H]`.
        results: `(operands, rows) -> templates`.
        compute: `(loops, params, operands, rows, results)` fills in the results.
        per_edge: whether results are per entry.
    """

    axes: tuple[int, ...]
    results: Callable[[Arrays, Entries], list[Template]]
    compute: Callable[[Loops, Mapping[str, Any], Arrays, Entries, Arrays], None]
    per_edge: bool = False


# --- Results ---------------------------------------------------------------------------------------------------------


def _per_row(operands: Arrays, rows: Entries) -> list[Template]:
    x = operands[0]
    return [((rows.num_rows, *x.shape[1:]), x.dtype)]


def _per_row_of_last(operands: Arrays, rows: Entries) -> list[Template]:
    return _per_row(operands[-1:], rows)


def _count_per_row(_operands: Arrays, rows: Entries) -> list[Template]:
    return [((rows.num_rows,), np.dtype(np.int32))]


def _per_entry(operands: Arrays, rows: Entries) -> list[Template]:
    x = operands[0]
    return [((rows.num_entries, *x.shape[1:]), x.dtype)]


def _per_entry_and_head(operands: Arrays, rows: Entries) -> list[Template]:
    x = operands[0]
    return [((rows.num_entries, x.shape[1]), x.dtype)]


def _per_entry_and_row(operands: Arrays, rows: Entries) -> list[Template]:
    return [*_per_entry(operands[:1], rows), *_per_row(operands[1:], rows)]


# --- Computations ----------------------------------------------------------------------------------------------------


def _gather_sum(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce("sum", operands[0], rows, rows.neighbours, results[0])


def _gather_extremum(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce(params["reduce"], operands[0], rows, rows.neighbours, results[0])


def _gather_weighted(
    loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays
) -> None:
    x, weight = operands
    loops.reduce("weighted_sum", x, rows, rows.neighbours, results[0], weight=weight)


def _select_sum(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    own, other, x = operands
    loops.reduce("select_sum", x, rows, rows.neighbours, results[0], own=own, other=other)


def _collect(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.reduce("sum", operands[0], rows, rows.edges, results[0])


def _collect_extremum(
    loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays
) -> None:
    loops.reduce(params["reduce"], operands[0], rows, rows.edges, results[0])


def _expand(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    loops.expand(operands[0], rows, rows.neighbours if params["direction"] == "out" else None, results[0])


def _edge_dot(loops: Loops, _params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    own, x = operands
    loops.dot(own, x, rows, results[0])


def _edge_softmax(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    scores, loop_scores = operands
    if (dtype := wide(scores.dtype)) != scores.dtype:
        wide_results = [np.empty(result.shape, dtype) for result in results]
        _edge_softmax(loops, params, [operand.astype(dtype) for operand in operands], rows, wide_results)
        for result, wide_result in zip(results, wide_results, strict=True):
            result[...] = wide_result
        return
    # As primitives/softmax.py, which says why; heads are columns here, [entries, 1, H].
    alpha, loop_alpha = results
    largest, total, spread = np.empty_like(loop_alpha), np.empty_like(loop_alpha), np.empty_like(alpha)
    loops.reduce("max", scores[:, None], rows, None, largest[:, None])
    empty = (np.diff(rows.offsets) == 0)[:, None]
    largest = np.where(empty, loop_scores, np.maximum(largest, loop_scores))
    shift = np.where(np.isfinite(largest), largest, largest.dtype.type(0))
    loops.expand(shift[:, None], rows, None, alpha[:, None])
    np.exp(np.subtract(scores[: rows.num_entries], alpha, out=alpha), out=alpha)
    np.exp(np.subtract(loop_scores, shift, out=loop_alpha), out=loop_alpha)
    loops.reduce("sum", alpha[:, None], rows, None, total[:, None])
    total += loop_alpha
    total[total == 0] = 1
    loops.expand(total[:, None], rows, None, spread[:, None])
    alpha /= spread
    loop_alpha /= total


def _degrees(_loops: Loops, _params: Mapping[str, Any], _operands: Arrays, rows: Entries, results: Arrays) -> None:
    results[0][...] = np.diff(rows.offsets)


def _self_loops(_loops: Loops, _params: Mapping[str, Any], _operands: Arrays, rows: Entries, results: Arrays) -> None:
    row = np.repeat(np.arange(rows.num_rows), np.diff(rows.offsets))
    loops = rows.neighbours[rows.first : rows.last] == row + rows.first_row
    results[0][...] = np.bincount(row[loops], minlength=rows.num_rows)


OPERATORS: dict[str, Operator] = {
    "dorylax_collect": Operator((3,), _per_row, _collect),
    "dorylax_collect_extremum": Operator((3,), _per_row, _collect_extremum),
    "dorylax_degrees": Operator((), _count_per_row, _degrees),
    "dorylax_edge_dot": Operator((3, 3), _per_entry_and_head, _edge_dot, per_edge=True),
    "dorylax_edge_softmax": Operator((2, 2), _per_entry_and_row, _edge_softmax, per_edge=True),
    "dorylax_expand": Operator((3,), _per_entry, _expand, per_edge=True),
    "dorylax_gather_extremum": Operator((3,), _per_row, _gather_extremum),
    "dorylax_gather_sum": Operator((3,), _per_row, _gather_sum),
    "dorylax_gather_weighted": Operator((3, 2), _per_row, _gather_weighted),
    "dorylax_select_sum": Operator((3, 3, 3), _per_row_of_last, _select_sum),
    "dorylax_self_loops": Operator((), _count_per_row, _self_loops),
}
"""Every graph primitive by name."""
