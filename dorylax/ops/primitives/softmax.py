"""`edge_softmax` over each vertex's in-edges together with an implicit self-loop."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from dorylax.jax_internals import ShapedArray
from dorylax.ops.primitives.base import Operator, Structure
from dorylax.ops.primitives.counts import degrees
from dorylax.ops.primitives.extremum import collect_extremum
from dorylax.ops.primitives.linear import collect, expand


def _abstract(scores: Any, loop_scores: Any, structure: Structure) -> tuple[Any, Any]:
    del structure
    return (
        ShapedArray(scores.shape, scores.dtype),
        ShapedArray(loop_scores.shape, loop_scores.dtype),
    )


def _softmax(scores: Any, loop_scores: Any, structure: Structure) -> tuple[Any, Any]:
    largest = collect_extremum(scores[:, :, None], structure, reduce="max")[:, :, 0]
    # An empty row's maximum reads 0, which may lie far above its loop's score and let that underflow.
    empty = (degrees(structure, direction="in") == 0)[:, None]
    largest = jnp.where(empty, loop_scores, jnp.maximum(largest, loop_scores))
    # A score of -inf means that there is no such edge; shifting by -inf would give NaN.
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


edge_softmax = Operator("dorylax_edge_softmax", 2, abstract=_abstract, lower=_softmax, several=True)


def _jvp(dense: list[Any], tangents: list[Any], structure: Structure) -> tuple[Any, Any]:
    (scores, loop_scores), (t, loop_t) = dense, tangents
    a, loop_a = edge_softmax(scores, loop_scores, structure)
    # d softmax(s) = a ⊙ (ds - Σ a ds), the sum over the destination's edges and its loop.
    mean = _collect(a * t, structure) + loop_a * loop_t
    return (a, loop_a), (a * (t - _expand(mean, structure)), loop_a * (loop_t - mean))


edge_softmax.def_jvp(_jvp)
edge_softmax.def_batching("heads")
