"""`edge_softmax` over each vertex's in-edges together with an implicit self-loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.ops.primitives.extremum import collect_extremum
from dorylax.ops.primitives.linear import collect, degrees, expand
from dorylax.ops.primitives.operator import TRANSCENDENTAL, OperandSpec, Operator, ResultSpec
from dorylax.ops.primitives.structure import Structure
from dorylax.ops.row_loops.loops import Arrays, Loops, wide
from dorylax.ops.row_loops.rows import Entries


def _softmax(scores: Any, loop_scores: Any, structure: Structure) -> tuple[Any, Any]:
    largest = collect_extremum(scores[:, :, None], structure, reduce="max")[:, :, 0]
    # The maximum of an empty row reads 0, which may far exceed its loop's score and let that underflow.
    empty = (degrees(structure, direction="in") == 0)[:, None]
    largest = jnp.where(empty, loop_scores, jnp.maximum(largest, loop_scores))
    # A score of -inf excludes the edge; shifting by -inf would give NaN.
    shift = jnp.where(jnp.isfinite(largest), largest, 0)
    shifted = jnp.exp(scores - _expand(shift, structure))
    loop_shifted = jnp.exp(loop_scores - shift)
    total = _collect(shifted, structure) + loop_shifted
    total = jnp.where(total == 0, 1, total)
    return shifted / _expand(total, structure), loop_shifted / total


def _expand(x: Any, structure: Structure) -> Any:
    return expand(x[:, :, None], structure, direction="in")[:, :, 0]


def _collect(e: Any, structure: Structure) -> Any:
    return collect(e[:, :, None], structure, direction="in")[:, :, 0]


def _softmax_rows(loops: Loops, params: Mapping[str, Any], operands: Arrays, rows: Entries, results: Arrays) -> None:
    scores, loop_scores = operands
    if (dtype := wide(scores.dtype)) != scores.dtype:
        wide_results = [np.empty(result.shape, dtype) for result in results]
        _softmax_rows(loops, params, [operand.astype(dtype) for operand in operands], rows, wide_results)
        for result, wide_result in zip(results, wide_results, strict=True):
            result[...] = wide_result
        return
    # See `_softmax` for the reasons; heads are columns here, [entries, 1, H].
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


SOFTMAX = 4 + TRANSCENDENTAL
"""Operations per score of `edge_softmax`: maximum, shift, exponential, sum, division."""

edge_softmax = Operator(
    "edge_softmax",
    [OperandSpec("edge", axes=2), OperandSpec("own", axes=2)],
    [ResultSpec(axes=2, per_edge=True), ResultSpec(like=1, axes=2)],
    label="AE",
    flops=lambda sizes: SOFTMAX * (sizes.entries * sizes.widths[0] + sizes.rows * sizes.widths[1]),
    lower=_softmax,
    compute_rows=_softmax_rows,
    several=True,
)


def _jvp(dense: list[Any], tangents: list[Any], structure: Structure) -> tuple[Any, Any]:
    (scores, loop_scores), (t, loop_t) = dense, tangents
    a, loop_a = edge_softmax(scores, loop_scores, structure)
    # d softmax(s) = a ⊙ (ds - Σ a ds), the sum over the destination's edges and its loop.
    mean = _collect(a * t, structure) + loop_a * loop_t
    return (a, loop_a), (a * (t - _expand(mean, structure)), loop_a * (loop_t - mean))


edge_softmax.def_jvp(_jvp)
edge_softmax.def_batching("heads")
