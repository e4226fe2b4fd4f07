"""Metrics of correct and wrong predictions: accuracy and F1, from exact counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from dorylax.metrics.base import Measure
from dorylax.program.model.loss import Labels, confusion_counts, micro_f1


def class_counts(logits: Float[Array, "V C"], labels: Labels, masks: Bool[Array, "M V"]) -> Int32[Array, "M C 3"]:
    """Count true positives, false positives and false negatives of each class, over each mask's vertices."""
    if labels.ndim == 1:
        classes = jnp.arange(logits.shape[1])
        predicted, true = jnp.argmax(logits, axis=1)[:, None] == classes, labels[:, None] == classes
    else:
        predicted, true = logits > 0, labels > 0.5
    found = jnp.stack([predicted & true, predicted & ~true, ~predicted & true], axis=2)

    def over(mask: Any) -> Any:
        return jnp.where(mask[:, None, None], found, False).sum(axis=0, dtype=jnp.int32)

    counts: Array = jax.lax.map(over, masks)
    return counts


def macro_f1(counts: Int32[np.ndarray, "C 3"]) -> float:
    """Return the mean over classes of 2 TP / (2 TP + FP + FN), without classes that are neither present nor predicted."""
    hits, *misses = counts.astype(np.int64).T
    total = 2 * hits + sum(misses)
    return float(np.mean(2 * hits[total > 0] / total[total > 0])) if total.any() else 0.0


_OF_ALL = Measure(("classes", "several"), confusion_counts, lambda sums, mask: micro_f1(sums[mask]), additive=True)
MEASURES = {
    "accuracy": _OF_ALL._replace(kinds=("classes",)),
    "micro_f1": _OF_ALL,
    "macro_f1": Measure(
        ("classes", "several"), class_counts, lambda sums, mask: macro_f1(np.asarray(sums[mask])), additive=True
    ),
}
