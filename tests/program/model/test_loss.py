from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.program.model.loss import (
    absolute_error,
    confusion,
    confusion_counts,
    masked_loss,
    masked_sums,
    micro_f1,
    squared_error,
)

LOGITS = jnp.array([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0], [0.0, 5.0]])
CLASSES = jnp.array([0, 0, 0, 1], jnp.int32)
INDICATORS = jnp.array([[1, 0], [1, 1], [0, 0], [0, 1]], jnp.float32)
MASK = jnp.array([True, True, False, False])


def test_softmax_loss_is_the_mean_over_the_mask():
    expected = (np.log1p(np.exp(-2)) + np.log1p(np.exp(1))) / 2
    assert float(masked_loss(LOGITS, CLASSES, MASK)) == pytest.approx(expected, rel=1e-6)


def test_sigmoid_loss_is_the_mean_over_the_mask_and_the_labels():
    softplus = lambda z: np.log1p(np.exp(z))  # noqa: E731
    expected = (softplus(-2) + softplus(0) + softplus(0) + softplus(-1)) / 4
    assert float(masked_loss(LOGITS, INDICATORS, MASK)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("labels", [CLASSES, INDICATORS])
def test_masked_is_subset(labels):
    assert float(masked_loss(LOGITS, labels, MASK)) == pytest.approx(
        float(masked_loss(LOGITS[:2], labels[:2], MASK[:2])), rel=1e-6
    )
    gradient = jax.grad(masked_loss)(LOGITS, labels, MASK)
    assert np.all(gradient[2:] == 0)
    assert np.all(gradient[:2] != 0)


def test_rows_outside_the_mask_may_hold_anything():
    labels = CLASSES.at[3].set(-1)
    logits = LOGITS.at[2].set(jnp.nan)
    assert float(masked_loss(logits, labels, MASK)) == float(masked_loss(LOGITS, CLASSES, MASK))


def test_bfloat16_is_summed_in_float32():
    loss = masked_loss(LOGITS.astype(jnp.bfloat16), CLASSES, MASK)
    assert loss.dtype == jnp.float32
    assert float(loss) == pytest.approx(float(masked_loss(LOGITS, CLASSES, MASK)), rel=1e-6)


def test_accuracy():
    masks = jnp.stack([MASK, ~MASK, jnp.zeros(4, bool), jnp.ones(4, bool)])
    counts = np.asarray(confusion_counts(LOGITS, CLASSES, masks))
    # Vertex 1 is wrong; vertex 2 is a tie, which the first class wins.
    assert counts.tolist() == [[1, 1, 1], [2, 0, 0], [0, 0, 0], [3, 1, 1]]
    assert [micro_f1(row) for row in counts] == [0.5, 1.0, 0.0, 0.75]


@pytest.mark.parametrize("classes", [1, 2, 7, 50])
def test_a_hit_is_where_argmax_is(classes):
    rng = np.random.default_rng(classes)
    logits = rng.integers(-2, 3, (500, classes)).astype(np.float32)  # many are equal
    logits[:20] = rng.choice([-np.inf, np.inf, 0.0], (20, classes))
    labels = rng.integers(-1, classes + 1, 500).astype(np.int32)
    hits = np.asarray(confusion(jnp.asarray(logits), jnp.asarray(labels)))[:, 0]
    np.testing.assert_array_equal(hits, logits.argmax(axis=1) == labels)


def test_where_a_logit_is_nan_nothing_is_predicted():
    logits = jnp.array([[np.nan, 0.0], [0.0, np.nan], [np.nan, np.nan]])
    for label in (0, 1):
        assert not np.asarray(confusion(logits, jnp.full(3, label, jnp.int32)))[:, 0].any()


def test_micro_f1():
    counts = np.asarray(confusion_counts(LOGITS, INDICATORS, jnp.ones((1, 4), bool)))
    # Predicted: {0}, {1}, {0, 1}, {1}; true: {0}, {0, 1}, {}, {1}.
    assert counts.tolist() == [[3, 2, 1]]
    assert micro_f1(counts[0]) == pytest.approx(6 / 9)


TARGETS = jnp.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [0.0, 4.0]])


def test_errors_are_averaged_over_the_targets_of_a_vertex():
    np.testing.assert_allclose(squared_error(LOGITS, TARGETS), [0.5, 0.5, 0, 0.5])
    np.testing.assert_allclose(absolute_error(LOGITS, TARGETS), [0.5, 0.5, 0, 0.5])
    np.testing.assert_allclose(squared_error(LOGITS[:, 0] + 2, TARGETS[:, 0]), [9, 4, 4, 4])
    np.testing.assert_allclose(absolute_error(LOGITS[:, :1] + 2, TARGETS[:, 0]), [3, 2, 2, 2])


def test_errors_are_not_broadcast():
    for output, targets in ((LOGITS, TARGETS[:, 0]), (LOGITS[:, 0], TARGETS), (LOGITS[:, :1], TARGETS)):
        with pytest.raises(ValueError, match="one number for each target"):
            squared_error(output, targets)
    with pytest.raises(TypeError, match="one array like the targets, got dict"):
        absolute_error({"a": LOGITS}, TARGETS)


def test_sums_of_masks_leave_out_what_does_not_count():
    masks = jnp.stack([MASK, ~MASK, jnp.zeros(4, bool)])
    rows = jnp.array([1.0, 2.0, 4.0, jnp.inf])
    np.testing.assert_array_equal(masked_sums(rows, masks), [[3, 2], [jnp.inf, 2], [0, 0]])
