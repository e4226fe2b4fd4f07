"""Masked losses, and the metric of classes: one label per vertex, or several.

Which of the two is read off the labels: int32 `[V]` are classes, float32 `[V, C]` are 0/1 indicators. Targets, of a
regression, are floating `[V]` or `[V, T]`. Everything is a pure function of arrays and may be traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Float32, Int32

Labels = Int32[Array, " V"] | Float32[Array, "V C"]

RowFunction = Callable[[Any, Any], Any]
"""`(model's output, labels) -> rows [V, …]`: a loss, or what metrics sum."""


def cross_entropy(logits: Float[Array, "V C"], labels: Labels) -> Float[Array, " V"]:
    """The loss of each vertex, `[V]`, in float32 (float64 for float64 logits).

    Softmax cross-entropy for classes; for indicators the sigmoid cross-entropy, averaged over the C labels.

    Args:
        logits: `[V, C]`, any float type.
        labels: classes int32 `[V]` (anything outside 0 … C-1 where the vertex does not count) or indicators float32
            `[V, C]`.
    """
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if labels.ndim == 1:
        known = jnp.clip(labels, 0, wide.shape[1] - 1)
        rows: Array = optax.softmax_cross_entropy_with_integer_labels(wide, known)
        return rows
    return jnp.mean(optax.sigmoid_binary_cross_entropy(wide, labels), axis=1)


def binary_cross_entropy(logits: Float[Array, " N"], labels: Float[Array, " N"]) -> Float[Array, " N"]:
    """The sigmoid cross-entropy of each example, of labels 0 and 1, in float32 (float64 for float64 logits)."""
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    rows: Array = optax.sigmoid_binary_cross_entropy(wide, labels)
    return rows


def squared_error(output: Any, targets: Float[Array, "V ..."]) -> Float[Array, " V"]:
    """(output - target)² of each vertex, `[V]`, averaged over its T targets; output `[V]`, `[V, 1]` or `[V, T]`."""
    rows: Array = _mean_of_row(jnp.square(_difference(output, targets)))
    return rows


def absolute_error(output: Any, targets: Float[Array, "V ..."]) -> Float[Array, " V"]:
    """abs(output - target) of each vertex, as `squared_error`."""
    rows: Array = _mean_of_row(jnp.abs(_difference(output, targets)))
    return rows


def huber(output: Any, targets: Float[Array, "V ..."]) -> Float[Array, " V"]:
    """`d²/2` where `d = abs(output - target)` is at most 1, `d - 1/2` beyond, as `squared_error` (Huber, 1964)."""
    difference = _difference(output, targets)
    rows: Array = _mean_of_row(optax.huber_loss(difference, jnp.zeros_like(difference)))
    return rows


def _difference(output: Any, targets: Any) -> Any:
    """Refuses to broadcast: [V, 1] - [V] would compare every vertex with every other."""
    if not hasattr(output, "shape"):
        raise TypeError(f"the model must return one array like the targets, got {type(output).__name__}")
    flat = (output.shape[1:], targets.shape[1:]) in (((1,), ()), ((), (1,)))
    if output.shape[1:] != targets.shape[1:] and not flat:
        raise ValueError(
            f"the model must return one number for each target, got {list(output.shape)} for targets {list(targets.shape)}"
        )
    return output.reshape(targets.shape) - targets


def _mean_of_row(rows: Any) -> Any:
    return rows.mean(axis=tuple(range(1, rows.ndim)))


def masked_loss(
    output: Any, labels: Any, mask: Bool[Array, " V"], loss: Callable[[Any, Any], Any] = cross_entropy
) -> Float[Array, ""]:
    """Mean of a loss over the chosen vertices, of which there is at least one.

    Args:
        output: of the model.
        labels: `[V, …]`.
        mask: the vertices, bool `[V]`.
        loss: `(output, labels) -> [V]`.
    """
    # `where`, not a product: 0 · inf of a vertex that does not count would be NaN.
    return jnp.where(mask, loss(output, labels), 0).sum() / mask.sum()


def masked_sums(rows: Float[Array, " V"], masks: Bool[Array, "M V"]) -> Float[Array, "M 2"]:
    """Sum over each mask's vertices, and how many there are; masks bool `[M, V]`."""
    sums = jax.vmap(lambda mask: jnp.where(mask, rows, 0).sum())(masks)
    return jnp.stack([sums, masks.sum(axis=1).astype(rows.dtype)], axis=1)


def confusion(logits: Float[Array, "V C"], labels: Labels) -> Int32[Array, "V 3"]:
    """True positives, false positives and false negatives of each vertex over all classes, `[V, 3]`.

    A label is predicted where it is the first largest logit (classes; none where one is NaN), or where its logit is > 0
    (indicators).
    """
    if labels.ndim == 1:
        hit = _is_first_largest(logits, labels)
        return jnp.stack([hit, ~hit, ~hit], axis=1).astype(jnp.int32)
    predicted, true = logits > 0, labels > 0.5
    pairs = ((predicted, true), (predicted, ~true), (~predicted, true))
    return jnp.stack([(p & t).sum(axis=1, dtype=jnp.int32) for p, t in pairs], axis=1)


def _is_first_largest(logits: Any, labels: Any) -> Any:
    """Whether a vertex's class has the first largest logit, and none is NaN, bool `[V]`.

    Not `argmax(logits) == labels`: XLA makes a loop of that which takes 170 ns for 50 classes on a CPU, and this 20. A
    logit is not compared with itself, which XLA may have computed twice and rounded in two ways.
    """
    known = jnp.clip(labels, 0, logits.shape[1] - 1)[:, None]
    own, classes = jnp.take_along_axis(logits, known, axis=1), jnp.arange(logits.shape[1])[None]
    beaten = jnp.where(classes < known, own > logits, own >= logits) | (classes == known)
    return beaten.all(axis=1) & (known[:, 0] == labels)


def confusion_counts(logits: Float[Array, "V C"], labels: Labels, masks: Bool[Array, "M V"]) -> Int32[Array, "M 3"]:
    """Sums of `confusion` over each mask's vertices; masks bool `[M, V]`."""
    rows = confusion(logits, labels)
    return jax.vmap(lambda mask: jnp.where(mask[:, None], rows, 0).sum(axis=0, dtype=jnp.int32))(masks)


def micro_f1(counts: Int32[np.ndarray, " 3"]) -> float:
    """2 TP / (2 TP + FP + FN), a fraction; 0 where nothing is true and nothing predicted.

    With one label per vertex a miss is one false positive and one false negative, so this is the accuracy.
    """
    hits, false_positives, false_negatives = (int(count) for count in counts)
    total = 2 * hits + false_positives + false_negatives
    return 2 * hits / total if total else 0.0
