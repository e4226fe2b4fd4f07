"""Seeded splits: disjoint, of the right sizes, by class, and the same everywhere."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.graph import GraphError, per_class_split, public_split, random_split, splits, stratified_split
from dorylax.graph.labels import as_mask
from dorylax.graph.splits import one_split

FEW = settings(max_examples=50, deadline=None)

FRACTIONS = st.sampled_from([(0.6, 0.2, 0.2), (0.1, 0.3, 0.3), (0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.05, 0.05, 0.9)])


@FEW
@given(st.integers(1, 400), st.integers(0, 9), FRACTIONS, st.integers(0, 12))
def test_masks_are_disjoint_and_of_the_right_sizes(v, seed, fractions, classes):
    labels = np.random.default_rng(seed).integers(0, classes, v) if classes else None
    masks = random_split(v, seed, fractions) if labels is None else stratified_split(labels, seed, fractions)
    assert (sum(mask.astype(int) for mask in masks) <= 1).all()
    for mask, part in zip(masks, fractions, strict=True):
        assert abs(int(mask.sum()) - part * v) <= 1
        for c in range(classes):
            assert abs(int(mask[labels == c].sum()) - part * int((labels == c).sum())) <= 2.5
    if abs(sum(fractions) - 1) < 1e-9:
        assert sum(mask.astype(int) for mask in masks).all()


def test_the_split_is_what_it_was():
    """Pins the draw: a change would silently give published numbers another split."""
    train, val, test = random_split(10, 7)
    assert [np.flatnonzero(mask).tolist() for mask in (train, val, test)] == [[0, 1, 2, 4, 6, 7], [3, 8], [5, 9]]


def test_the_split_by_class_is_what_it_was():
    train, val, test = stratified_split([0, 1] * 5, 7)
    assert [np.flatnonzero(mask).tolist() for mask in (train, val, test)] == [[0, 1, 3, 6, 7, 8], [4, 9], [2, 5]]


def test_only_labelled_vertices_are_split():
    labels = np.array([0, 1, -1, 1, 0, -1, 1, 0, 1, 0])
    for split in (
        stratified_split(labels, 0, (0.5, 0.25, 0.25)),
        random_split(10, 0, (0.5, 0.25, 0.25), among=labels >= 0),
    ):
        assert [int(mask.sum()) for mask in split] == [4, 2, 2]
        assert not any(mask[[2, 5]].any() for mask in split)


def test_a_number_for_each_class():
    labels = np.repeat([0, 1, 2, -1], [30, 50, 40, 80])
    train, val, test = per_class_split(labels, 0, per_class=20, num_val=25, num_test=35)
    assert np.bincount(labels[train]).tolist() == [20, 20, 20]
    assert (val.sum(), test.sum()) == (25, 35)
    assert not (train & val).any()
    assert not (train & test).any()
    assert not (val & test).any()
    assert (labels[val | test] >= 0).all()
    assert (per_class_split(labels, 0, 20, 25, 35).val_mask == val).all()
    assert (per_class_split(labels, 1, 20, 25, 35).train_mask != train).any()


def test_one_of_several_that_came_along():
    columns = np.eye(3, dtype=bool)
    split = public_split(columns, np.roll(columns, 1, axis=0).tolist(), [0, 0, 1], column=1)
    assert [mask.tolist() for mask in split] == [[False, True, False], [False, False, True], [False, False, True]]
    with pytest.raises(GraphError, match=r"train_mask holds the splits 0 … 2, got 3"):
        public_split(columns, columns, columns, 3)


ROWS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], bool)  # 3 splits of 4 vertices


@pytest.mark.parametrize(
    "given", [ROWS, ROWS.T, ROWS.astype(np.int64), ROWS.T.tolist(), ROWS[1], ROWS[1:2], ROWS[1:2].T]
)
def test_one_split_of_masks_by_row_or_by_column(given: Any) -> None:
    several = np.shape(given) in ((3, 4), (4, 3))
    masks = one_split({"train_mask": given, "test_mask": [3]}, 4, 1 if several else None)
    assert as_mask("train_mask", masks["train_mask"], 4).tolist() == [False, True, False, False]
    assert masks["test_mask"].tolist() == [3]
    fault = "holds 3 splits: choose one, split (data.split) = 0 … 2" if several else "the masks hold one split: leave"
    with pytest.raises(GraphError, match=f"{re.escape(fault)}|holds the splits 0 … 0, got 1"):
        one_split({"train_mask": given}, 4, None if several else 1)


def test_splits_that_may_be_rows_or_columns_are_refused() -> None:
    with pytest.raises(GraphError, match=r"train_mask has shape \[3, 3\], so that rows or columns could be splits"):
        one_split({"train_mask": np.eye(3, dtype=bool)}, 3, 0)
    with pytest.raises(GraphError, match=r"train_mask holds the splits 0 … 2, got 3"):
        one_split({"train_mask": ROWS}, 4, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_split(5, -1), r"seed must be ≥ 0, got -1"),
        (lambda: random_split(5, 0, (0.8, 0.2, 0.2)), r"add up to at most 1, got \(0\.8"),
        (lambda: random_split(5, 0, (-0.1, 0.2, 0.2)), r"in 0 … 1"),
        (lambda: random_split(5, 0, (0.5, 0.5)), r"must be three, of train, validation and test, got \(0\.5, 0\.5\)"),
        (
            lambda: random_split(5, 0, among=[9]),
            r"among is neither a mask \(5 zeros and ones\) nor a list of vertices: among\[0\] = 9 is not in 0 … 4",
        ),
        (
            lambda: stratified_split(np.eye(4), 0),
            r"labels must be classes, integers \[V\], to split by class, got float64",
        ),
        (
            lambda: per_class_split([0] * 20 + [4] * 3, 0),
            r"class 4 has 3 vertices: per_class = 20 needs as many of each",
        ),
        (lambda: per_class_split([0] * 30, 0), r"10 labelled vertices are left .* num_val \+ num_test = 1500 is more"),
        (lambda: per_class_split([0], 0, 0), r"per_class must be ≥ 1, got 0"),
        (lambda: per_class_split([0], 0, 1, -1), r"num_val must be ≥ 0, got -1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(GraphError, match=message):
        call()


@FEW
@given(
    st.integers(1, 400),
    st.integers(0, 9),
    FRACTIONS,
    st.sampled_from([(1, np.int64), (2, np.int8), (7, np.int32), (40_000, np.int32), (10**9, np.int64)]),
    st.sampled_from([1, 50, 400]),
)
def test_a_split_by_class_piece_by_piece_is_that_of_all_at_once(v, seed, fractions, classes, piece):
    """Against the definition: all vertices in random order, then by class, and places spread evenly over them."""
    labels = np.random.default_rng(seed).integers(-3, classes[0], v).astype(classes[1])
    pool = np.argsort(np.random.PCG64(seed).random_raw(v), kind="stable")
    pool = pool[np.argsort(labels[pool], kind="stable")]
    pool, left, expected = pool[labels[pool] >= 0], 1.0, []
    for part in fractions:
        share = min(1.0, part / left) if left > 0 else 0.0
        chosen = np.diff(np.floor(share * np.arange(len(pool) + 1) + (0.5 + 1e-9))) > 0
        expected.append(np.isin(np.arange(v), pool[chosen]))
        pool, left = pool[~chosen], left - part
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_PIECE", piece)
        found = stratified_split(labels, seed, fractions)
    for mask, right in zip(found, expected, strict=True):
        assert np.array_equal(mask, right)
