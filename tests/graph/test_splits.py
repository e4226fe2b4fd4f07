"""Seeded splits: disjoint, of the right sizes, by class, and the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import GraphError, seeded_split

FEW = settings(max_examples=50, deadline=None)

FRACTIONS = st.sampled_from([(0.6, 0.2, 0.2), (0.1, 0.3, 0.3), (0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.05, 0.05, 0.9)])


@FEW
@given(st.integers(1, 400), st.integers(0, 9), FRACTIONS, st.integers(0, 12))
def test_masks_are_disjoint_and_of_the_right_sizes(v, seed, fractions, classes):
    labels = np.random.default_rng(seed).integers(0, classes, v) if classes else None
    masks = seeded_split(v, seed, labels, fractions)
    assert (sum(mask.astype(int) for mask in masks) <= 1).all()
    for mask, part in zip(masks, fractions, strict=True):
        assert abs(int(mask.sum()) - part * v) <= 1
        for c in range(classes):
            assert abs(int(mask[labels == c].sum()) - part * int((labels == c).sum())) <= 2.5
    if abs(sum(fractions) - 1) < 1e-9:
        assert sum(mask.astype(int) for mask in masks).all()


def test_every_class_of_some_size_is_in_every_mask():
    labels = np.repeat(np.arange(30), 5)
    for mask, count in zip(seeded_split(150, 0, labels), (3, 1, 1), strict=True):
        assert (np.bincount(labels[mask], minlength=30) == count).all()


def test_seeds_differ_and_repeat():
    a, b, c = (seeded_split(1000, seed)[0] for seed in (0, 0, 1))
    assert (a == b).all()
    assert (a != c).any()


def test_the_split_is_what_it_was():
    """Pins the draw: a change would silently give published numbers another split."""
    train, val, test = seeded_split(10, 7)
    assert [np.flatnonzero(mask).tolist() for mask in (train, val, test)] == [[0, 1, 2, 4, 6, 7], [3, 8], [5, 9]]


def test_multi_label_is_split_plainly():
    labels = np.eye(10, dtype=np.float32)
    assert (seeded_split(10, 7, labels)[0] == seeded_split(10, 7)[0]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"seed must be ≥ 0, got -1"),
        ({"fractions": (0.8, 0.2, 0.2)}, r"add up to at most 1, got \(0\.8"),
        ({"fractions": (-0.1, 0.2, 0.2)}, r"in 0 … 1"),
        ({"labels": np.zeros(4, int)}, r"labels has length 4: expected 5"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(GraphError, match=message):
        seeded_split(**{"num_vertices": 5, "seed": 0, **arguments})
