"""Running a graph operator on a row range: what is checked, and which loops serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dorylax.ops import native
from dorylax.ops.row_operators.loops import Loops
from dorylax.ops.row_operators.native_loops import NativeLoops
from dorylax.ops.row_operators.numpy_loops import NumpyLoops
from dorylax.ops.row_operators.operators import OPERATORS, Template
from dorylax.ops.row_operators.rows import Entries, RowRange, checked, contiguous
from dorylax.ops.row_operators.values import Role, roles

_NATIVE, _NUMPY = NativeLoops(), NumpyLoops()


def run(
    name: str,
    params: Mapping[str, Any],
    operands: Sequence[np.ndarray],
    rows: RowRange,
    *,
    out: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Computes one graph primitive for some rows.

    Args:
        name: the primitive's name, as "dorylax_gather_sum".
        params: its parameters. A "direction" says which rows the caller gives (`rows_side`) and is otherwise not read, but
            by "dorylax_expand".
        operands: its dense operands, with the axes that the primitive has (`[…, H, F]`; weights and scores `[…, H]`). By
            their `roles`: "own" `[R, …]`; "neighbour" `[N, …]`, where neighbours are trusted to lie in 0 … N-1; "edge"
            `[edges, …]`, where `rows.edges` is trusted to lie in 0 … edges-1, or without it at least one row per entry.
        rows: the rows; offsets are trusted not to decrease.
        out: C-contiguous arrays for the results, of their dtype and with at least as many rows; rows beyond stay untouched.

    Returns:
        The results, per row `[R, …]` or, of "dorylax_expand", "dorylax_edge_dot" and the first of "dorylax_edge_softmax",
        per entry `[entries, …]`. Written to `out` they are its first rows.

    Raises:
        ValueError: no such primitive or parameter; an array has the wrong dtype, shape or layout, or too few rows; `out`
            overlaps an operand; values per edge are asked for of rows whose entries are not in order of edges.
    """
    needed = roles(name, params)
    operator = OPERATORS[name]
    entries = checked(rows)
    if operator.per_edge and entries.edges is not None:
        raise ValueError(f"{name} runs over in-rows, whose entries are edges in order: expected edges=None")
    arrays = _operands(name, needed, operator.axes, operands, entries)
    templates = operator.results(arrays, entries)
    if out is None:
        results = [np.empty(shape, dtype) for shape, dtype in templates]
    else:
        results = _outputs(name, templates, out, operands)
    loops: Loops = _NATIVE if native.usable(*(array.dtype for array in arrays)) else _NUMPY
    with np.errstate(all="ignore"):  # infinities and NaN are values here, as in JAX
        operator.compute(loops, params, arrays, entries, results)
    return results


def _operands(
    name: str, needed: Sequence[Role], axes: Sequence[int], operands: Sequence[np.ndarray], rows: Entries
) -> list[np.ndarray]:
    """The operands, contiguous, after checking that the loops stay inside them."""
    if len(operands) != len(needed):
        raise ValueError(f"{name} takes {len(needed)} operands ({', '.join(needed)}), got {len(operands)}")
    trailing: tuple[int, ...] = ()
    for i, (array, role, ndim) in enumerate(zip(operands, needed, axes, strict=True)):
        trailing = max(trailing, array.shape[1:], key=len)
        if array.ndim != ndim or array.shape[1:] != trailing[: ndim - 1]:
            raise ValueError(
                f"operand {i} ({role}) of {name} must have {ndim} axes, heads and columns as the others, got shapes "
                f"{[list(operand.shape) for operand in operands]}"
            )
        if role == "own":
            fits, least = len(array) == rows.num_rows, f"{rows.num_rows} rows"
        elif role == "edge" and rows.edges is None:
            fits, least = len(array) >= rows.num_entries, f"at least {rows.num_entries} rows, one per entry"
        else:
            fits, least = len(array) > 0 or rows.num_entries == 0, "at least 1 row, as there are entries that read it"
        if not fits:
            raise ValueError(f"operand {i} ({role}) of {name} must have {least}, got {len(array)}")
    return [contiguous(array) for array in operands]


def _outputs(
    name: str, templates: Sequence[Template], out: Sequence[np.ndarray], operands: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The given arrays' first rows, after checking that results fit and overwrite no operand."""
    if len(out) != len(templates):
        raise ValueError(f"{name} has {len(templates)} results, got {len(out)} arrays in out")
    results = []
    for i, (array, (shape, dtype)) in enumerate(zip(out, templates, strict=True)):
        if array.dtype != dtype or array.shape[1:] != shape[1:] or len(array) < shape[0] or not array.flags.carray:
            raise ValueError(
                f"out[{i}] of {name} must be writable C-contiguous {dtype} {list(shape)} or longer, got {array.dtype} "
                f"{list(array.shape)} ({'writable' if array.flags.writeable else 'read-only'}, "
                f"{'C-contiguous' if array.flags.c_contiguous else 'not C-contiguous'})"
            )
        results.append(array[: shape[0]])
        if any(np.may_share_memory(results[-1], operand) for operand in operands):
            raise ValueError(f"out[{i}] of {name} must not overlap an operand")
    return results
