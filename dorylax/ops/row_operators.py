"""Graph operators on NumPy buffers and slices of compressed rows, for graph servers that run them in several threads.

Each computes the same as the primitive of its name (`dorylax.ops.primitives`), for the rows of a `RowRange` only. The native
kernels compute float32, float64 and bfloat16, without Python's lock; NumPy computes the rest, and everything without the
native library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dorylax.ops import native
from dorylax.ops.primitives.operator import OPERATORS, Operator
from dorylax.ops.row_loops.loops import Loops
from dorylax.ops.row_loops.rows import Entries, RowRange, checked, contiguous


def operator_on_rows(name: str) -> Operator:
    """Return the operator of a primitive that supports computing some rows.

    Args:
        name: Name of the primitive, such as "dorylax_gather_sum".

    Raises:
        ValueError: There is no such primitive, or it only runs on a whole graph.
    """
    operator = OPERATORS.get(name)
    if operator is not None and operator.written_out is not None:
        raise ValueError(
            f"{name!r} is a fused operator, which runs on a whole graph only: trace the model with fused=False, which "
            "writes it out in operators that can be split"
        )
    if operator is None:
        known = sorted(name for name, operator in OPERATORS.items() if operator.compute_rows)
        raise ValueError(f"{name!r} is not a graph operator: expected one of {', '.join(known)}")
    if operator.compute_rows is None:
        raise ValueError(f"{name!r} only runs on a whole graph: its `Operator` has no `compute_rows`")
    return operator


def run(
    name: str,
    params: Mapping[str, Any],
    operands: Sequence[np.ndarray],
    rows: RowRange,
    *,
    out: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Compute one graph primitive for some rows.

    Args:
        name: Name of the primitive, such as "dorylax_gather_sum".
        params: Its parameters. A "direction" names the given rows (`Operator.side`), and only "dorylax_expand" reads it
            otherwise.
        operands: Its dense operands, with the primitive's axes (`[…, H, F]`; weights and scores `[…, H]`). By their `roles`:
            "own" `[R, …]`; "neighbour" `[N, …]`, with unchecked neighbours in 0 … N-1; "edge" `[edges, …]`, with unchecked
            `rows.edges` in 0 … edges-1, or without it at least one row per entry.
        rows: The rows; offsets must not decrease, which is not checked.
        out: C-contiguous arrays for the results, of their dtype and with at least as many rows; further rows stay unchanged.

    Returns:
        The results, per row `[R, …]` or, for "dorylax_expand", "dorylax_edge_dot" and the first of "dorylax_edge_softmax",
        per entry `[entries, …]`. With `out`, they are its first rows.

    Raises:
        ValueError: There is no such primitive or parameter; an array has the wrong dtype, shape or layout, or too few rows;
            `out` overlaps an operand; or values per edge are requested for rows whose entries are not in order of edges.
    """
    operator = operator_on_rows(name)
    assert operator.compute_rows is not None
    entries = checked(rows)
    if operator.per_edge and entries.edges is not None:
        raise ValueError(f"{name} runs over in-rows, whose entries are edges in order: expected edges=None")
    arrays = _operands(name, operator, params, operands, entries)
    templates = operator.result_shapes(arrays, entries.num_rows, entries.num_entries)
    if out is None:
        results = [np.empty(shape, dtype) for shape, dtype in templates]
    else:
        results = _outputs(name, templates, out, operands)
    loops = Loops(native.usable(*(array.dtype for array in arrays)))
    with np.errstate(all="ignore"):  # infinities and NaN are ordinary values here, as in JAX
        operator.compute_rows(loops, params, arrays, entries, results)
    return results


def _operands(
    name: str, operator: Operator, params: Mapping[str, Any], operands: Sequence[np.ndarray], rows: Entries
) -> list[np.ndarray]:
    """Return the operands, contiguous, after checking that the loops stay inside them."""
    needed = operator.roles(params)
    if len(operands) != len(needed):
        raise ValueError(f"{name} takes {len(needed)} operands ({', '.join(needed)}), got {len(operands)}")
    trailing: tuple[int, ...] = ()
    axes = [operand.axes for operand in operator.operands]
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
    name: str,
    templates: Sequence[tuple[tuple[Any, ...], Any]],
    out: Sequence[np.ndarray],
    operands: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Return the first rows of the given arrays, after checking that results fit and overwrite no operand."""
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
