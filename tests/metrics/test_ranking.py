"""Metrics of an order, beside their definitions, which look at every pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.metrics.catalogue import MEASURES, average_precision, hits_at, reciprocal_rank, roc_auc

# Few distinct scores, so that there are ties.
EXAMPLES = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)


def _arrays(examples: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    scores, true = zip(*examples, strict=True)
    return np.array(scores, np.float64), np.array(true, bool)


@given(EXAMPLES)
def test_roc_auc_is_the_share_of_pairs_in_order(examples: list[tuple[int, bool]]) -> None:
    scores, true = _arrays(examples)
    pairs = list(itertools.product(scores[true], scores[~true]))
    if not pairs:
        assert math.isnan(roc_auc(scores, true))
        return
    expected = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert roc_auc(scores, true) == pytest.approx(expected, abs=1e-12)


@given(EXAMPLES)
def test_average_precision_sums_precision_over_gained_recall(examples: list[tuple[int, bool]]) -> None:
    scores, true = _arrays(examples)
    if not true.any():
        assert math.isnan(average_precision(scores, true))
        return
    expected, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = scores >= threshold
        recall, precision = true[chosen].sum() / true.sum(), true[chosen].mean()
        expected, before = expected + (recall - before) * precision, recall
    assert average_precision(scores, true) == pytest.approx(expected, abs=1e-12)


@given(EXAMPLES)
def test_ranks_are_among_what_is_false(examples: list[tuple[int, bool]]) -> None:
    scores, true = _arrays(examples)
    if not true.any():
        assert math.isnan(reciprocal_rank(scores, true))
        assert math.isnan(hits_at(3, scores, true))
        return
    others = scores[~true]
    ranks = [1 + sum(others > score) + sum(others == score) / 2 for score in scores[true]]
    assert reciprocal_rank(scores, true) == pytest.approx(np.mean([1 / rank for rank in ranks]), abs=1e-12)
    third = sorted(others, reverse=True)[2] if len(others) >= 3 else -math.inf
    assert hits_at(3, scores, true) == pytest.approx(np.mean(scores[true] > third), abs=1e-12)


def _value(name: str, output: np.ndarray, labels: np.ndarray) -> float:
    masks = np.ones((1, len(labels)), bool)
    return MEASURES[name].value((output, labels, masks), 0)


def test_two_classes_are_ranked_by_the_difference_of_their_logits() -> None:
    logits, labels = np.array([[5.0, 4.0], [1.0, 3.0], [0.0, 1.0]]), np.array([0, 0, 1])
    assert _value("roc_auc", logits, labels) == pytest.approx(0.5)


def test_of_more_classes_each_is_ranked_against_the_rest_by_its_share() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)  # the fourth class is nobody's: left out
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for name, one in (("roc_auc", roc_auc), ("average_precision", average_precision)):
        expected = np.mean([one(shares[:, kind], labels == kind) for kind in range(3)])
        assert _value(name, logits, labels) == pytest.approx(expected)


def test_only_the_examples_of_a_mask_count() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=20), (rng.random(20) > 0.5).astype(np.float32)
    masks = np.stack([np.arange(20) < 9, np.arange(20) >= 9])
    for name in ("roc_auc", "average_precision", "mrr", "hits_at_10"):
        for number, mask in enumerate(masks):
            assert MEASURES[name].value((scores, labels, masks), number) == _value(name, scores[mask], labels[mask])
