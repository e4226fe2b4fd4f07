"""Accuracy and F1, beside their definitions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.metrics.catalogue import MEASURES


def _macro(predicted: np.ndarray, true: np.ndarray) -> float:
    """Of truth values `[n, C]`."""
    scores = []
    for column in range(true.shape[1]):
        p, t = predicted[:, column], true[:, column]
        if p.any() or t.any():
            scores.append(2 * (p & t).sum() / (p.sum() + t.sum()))
    return float(np.mean(scores))


@pytest.mark.parametrize("several", [False, True])
def test_macro_f1_is_the_mean_over_the_classes(several: bool) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 5)).astype(np.float32)
    logits[:, 4] = -9  # never predicted, and of no example: left out
    masks = np.stack([np.arange(40) < 15, np.arange(40) >= 15])
    if several:
        labels = (rng.random((40, 5)) > 0.6).astype(np.float32)
        labels[:, 4] = 0
        predicted, true = logits > 0, labels > 0
    else:
        labels = rng.integers(0, 4, 40).astype(np.int32)
        predicted, true = np.eye(5, dtype=bool)[logits.argmax(axis=1)], np.eye(5, dtype=bool)[labels]
    measure = MEASURES["macro_f1"]
    sums = np.asarray(measure.sums(*map(jnp.asarray, (logits, labels, masks))))
    for number, mask in enumerate(masks):
        assert measure.value(sums, number) == pytest.approx(_macro(predicted[mask], true[mask]))
    # Servers add up what they find.
    parts = [
        np.asarray(measure.sums(*map(jnp.asarray, (logits[part], labels[part], masks[:, part]))))
        for part in (slice(0, 11), slice(11, 40))
    ]
    assert (sum(parts) == sums).all()


def test_micro_f1_of_one_class_each_is_the_accuracy() -> None:
    logits, labels = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]], np.float32), np.array([0, 1, 1], np.int32)
    for name in ("accuracy", "micro_f1"):
        sums = MEASURES[name].sums(*map(jnp.asarray, (logits, labels, np.ones((1, 3), bool))))
        assert MEASURES[name].value(np.asarray(sums), 0) == pytest.approx(2 / 3)


def test_nothing_predicted_and_nothing_true_is_zero() -> None:
    logits, labels = -np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    sums = MEASURES["macro_f1"].sums(*map(jnp.asarray, (logits, labels, np.ones((1, 3), bool))))
    assert MEASURES["macro_f1"].value(np.asarray(sums), 0) == 0.0
