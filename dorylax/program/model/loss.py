"""Masked losses, and metrics of classes with one label per vertex or several.

The labels' type decides: int32 `[V]` are classes, float32 `[V, C]` are 0/1 indicators. Regression targets are floating-point
`[V]` or `[V, T]`. All functions are pure and may be traced.
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
"""`(model's output, labels) -> rows [V, …]`: a loss, or the summands of a metric."""


def cross_entropy(logits: Float[Array, "V C"], labels: Labels) -> Float[Array, " V"]:
    """Return the loss of each vertex, `[V]`, in float32 (float64 for float64 logits).

    Softmax cross-entropy for classes; for indicators the sigmoid cross-entropy, averaged over the C labels.

    Args:
        logits: `[V, C]`, any float type.
        labels: Classes int32 `[V]` (any value outside 0 … C-1 for vertices without a label) or indicators float32 `[V, C]`.
    """
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if labels.ndim == 1:
        known = jnp.clip(labels, 0, wide.shape[1] - 1)
        rows: Array = optax.softmax_cross_entropy_with_integer_labels(wide, known)
        return rows
    return jnp.mean(optax.sigmoid_binary_cross_entropy(wide, labels), axis=1)


def binary_cross_entropy(logits: Float[Array, " N"], labels: Float[Array, " N"]) -> Float[Array, " N"]:
    """Return the sigmoid cross-entropy of each example with label 0 or 1, in float32 (float64 for float64 logits)."""
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    rows: Array = optax.sigmoid_binary_cross_entropy(wide, labels)
    return rows


def squared_error(output: Any, targets: Float[Array, "V ..."]) -> Float[Array, " V"]:
    """Return (output - target)² of each vertex, `[V]`, averaged over its T targets; output `[V]`, `[V, 1]` or `[V, T]`."""
    rows: Array = _mean_of_row(jnp.square(_difference(output, targets)))
    return rows


def absolute_error(output: Any, targets: Float[Array, "V ..."]) -> Float[Array, " V"]:
    """Return abs(output - target) of each vertex, with shapes as for `squared_error`."""
    rows: Array = _mean_of_row(jnp.abs(_difference(output, targets)))
    return rows


def huber(output: Any, targets: Float[Array, "V ..."]) -> Float[Array, " V"]:
    """Return `d²/2` for `d = abs(output - target)` ≤ 1, else `d - 1/2`, as `squared_error` (Huber, 1964)."""
    difference = _difference(output, targets)
    rows: Array = _mean_of_row(optax.huber_loss(difference, jnp.zeros_like(difference)))
    return rows


def _difference(output: Any, targets: Any) -> Any:
    """Subtract without broadcasting: [V, 1] - [V] would compare every vertex with every other."""
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
    """Return the mean of a loss over the chosen vertices, at least one.

    Args:
        output: Output of the model.
        labels: `[V, …]`.
        mask: The chosen vertices, bool `[V]`.
        loss: `(output, labels) -> [V]`.
    """
    # `where`, not a product, since 0 · inf of an excluded vertex would be NaN.
    return jnp.where(mask, loss(output, labels), 0).sum() / mask.sum()


def masked_sums(rows: Float[Array, " V"], masks: Bool[Array, "M V"]) -> Float[Array, "M 2"]:
    """Return the sum over each mask's vertices, and their number; masks bool `[M, V]`."""
    sums = jax.vmap(lambda mask: jnp.where(mask, rows, 0).sum())(masks)
    return jnp.stack([sums, masks.sum(axis=1).astype(rows.dtype)], axis=1)


def confusion(logits: Float[Array, "V C"], labels: Labels) -> Int32[Array, "V 3"]:
    """Return true positives, false positives and false negatives of each vertex over all classes, `[V, 3]`.

    For classes, the first largest logit is predicted, or no class if a logit is NaN. For indicators, every label with a
    logit > 0 is predicted.
    """
    if labels.ndim == 1:
        hit = _is_first_largest(logits, labels)
        return jnp.stack([hit, ~hit, ~hit], axis=1).astype(jnp.int32)
    predicted, true = logits > 0, labels > 0.5
    pairs = ((predicted, true), (predicted, ~true), (~predicted, true))
    return jnp.stack([(p & t).sum(axis=1, dtype=jnp.int32) for p, t in pairs], axis=1)


def _is_first_largest(logits: Any, labels: Any) -> Any:
    """Return whether a vertex's class has the first largest logit, and none is NaN, bool `[V]`.

    Not `argmax(logits) == labels`, which XLA compiles to a loop that takes 170 ns for 50 classes on a CPU, against 20 ns
    here. A logit is not compared with itself, because XLA may compute it twice with different rounding.
    """
    known = jnp.clip(labels, 0, logits.shape[1] - 1)[:, None]
    own, classes = jnp.take_along_axis(logits, known, axis=1), jnp.arange(logits.shape[1])[None]
    beaten = jnp.where(classes < known, own > logits, own >= logits) | (classes == known)
    return beaten.all(axis=1) & (known[:, 0] == labels)


def confusion_counts(logits: Float[Array, "V C"], labels: Labels, masks: Bool[Array, "M V"]) -> Int32[Array, "M 3"]:
    """Return the sums of `confusion` over each mask's vertices; masks bool `[M, V]`."""
    rows = confusion(logits, labels)
    return jax.vmap(lambda mask: jnp.where(mask[:, None], rows, 0).sum(axis=0, dtype=jnp.int32))(masks)


def micro_f1(counts: Int32[np.ndarray, " 3"]) -> float:
    """Return 2 TP / (2 TP + FP + FN), a fraction; 0 if no label is true or predicted.

    With one label per vertex, a miss is one false positive and one false negative, so this is the accuracy.
    """
    hits, false_positives, false_negatives = (int(count) for count in counts)
    total = 2 * hits + false_positives + false_negatives
    return 2 * hits / total if total else 0.0
