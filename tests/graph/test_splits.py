"""Splits of vertices and of edges, and masks, which are read in the only way that they can be meant."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.graphs import pairs

from dorylax.graph import (
    Graph,
    GraphError,
    link_split,
    link_splits,
    per_class_split,
    public_split,
    random_split,
    splits,
    stratified_split,
)
from dorylax.graph.array_names import MASKS
from dorylax.graph.labels import as_mask, checked_masks
from dorylax.graph.splits import one_split

FEW = settings(max_examples=50, deadline=None)

FRACTIONS = st.sampled_from([(0.6, 0.2, 0.2), (0.1, 0.3, 0.3), (0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.05, 0.05, 0.9)])


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


def _graph(size: int, num_edges: int, seed: int, symmetric: bool) -> Graph:
    rng = np.random.default_rng(seed)
    graph = Graph.from_coo(*rng.integers(0, size, (2, num_edges)), size)
    return graph.symmetrise() if symmetric else graph


def _split_pairs(links: link_splits.Links) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    pairs = list(zip(links.sources.tolist(), links.targets.tolist(), strict=True))
    positive = int(links.labels.sum())
    assert links.labels.tolist() == [1] * positive + [0] * (len(pairs) - positive)
    assert links.sources.dtype == links.targets.dtype == np.int32
    return pairs[:positive], pairs[positive:]


@FEW
@given(st.integers(8, 30), st.integers(20, 60), st.integers(0, 99), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_parts_share_no_pair_and_negatives_are_no_edges(v, e, seed, symmetric, apart):
    graph = _graph(v, e, seed, symmetric)
    edges = pairs(graph)
    assume(1.5 * len(set(edges)) / (1 + symmetric) + 2 <= v * (v - 1) / (1 + symmetric))  # denser ones are refused
    split = link_split(graph, seed, (0.6, 0.2, 0.2), apart=apart, negatives=0.5)
    of_messages = {frozenset(edge) for edge in pairs(split.graph) if edge[0] != edge[1]}
    seen, negatives = [], []
    for name, links in zip(("train", "val", "test"), split[1:], strict=True):
        positive, negative = _split_pairs(links)
        assert set(positive) <= set(edges)
        assert len(set(positive)) == len(positive)
        assert all(u != w for u, w in positive)
        assert len(negative) == round(0.5 * len(positive))
        if symmetric:
            assert all(u < w for u, w in positive + negative)
        both_ways = {frozenset(pair) for pair in positive}
        if name != "train" or apart:
            assert not both_ways & of_messages
        else:
            assert both_ways == of_messages
        seen.append(both_ways)
        negatives += negative
    assert not set(negatives) & set(edges)
    assert len(set(negatives)) == len(negatives)
    assert all(u != w for u, w in negatives)
    assert sum(map(len, seen)) == len(set.union(*seen))
    joined = {frozenset(edge) for edge in edges if edge[0] != edge[1]}
    assert set.union(*seen, of_messages) == joined
    assert [edge for edge in pairs(split.graph) if edge[0] == edge[1]] == [edge for edge in edges if edge[0] == edge[1]]
    assert split.graph.symmetric or not symmetric


def test_parts_have_their_shares():
    split = link_split(_graph(400, 3000, 0, symmetric=True), 0, (0.8, 0.1, 0.1), apart=0.25, negatives=2.0)
    counts = [int(links.labels.sum()) for links in split[1:]]
    total = sum(counts) + len(pairs(split.graph)) // 2
    assert counts == pytest.approx([0.2 * total, 0.1 * total, 0.1 * total], abs=2)
    assert [len(links.labels) for links in split[1:]] == [3 * count for count in counts]


def test_messages_keep_ids_and_values_of_their_edges():
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 12, (2, 40))
    graph = Graph.from_coo(sources, targets, 12, edge_data={"weight": np.arange(40.0)})
    left = link_split(graph, 0).graph
    ids = np.asarray(left.edge_ids)
    np.testing.assert_array_equal(left.edge_data["weight"], np.arange(40.0)[ids])
    assert sorted(zip(sources[ids].tolist(), targets[ids].tolist(), strict=True)) == sorted(pairs(left))


def test_all_that_is_no_edge_may_be_asked_for():
    graph = Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 0], 4).symmetrise()
    split = link_split(graph, 0, (1.0, 0.0, 0.0), apart=0.0, negatives=0.5)
    assert set(_split_pairs(split.train)[1]) == {(0, 2), (1, 3)}
    with pytest.raises(GraphError, match=r"ask for 4 pairs that are not edges, but there are only 2: lower negatives"):
        link_split(graph, 0, (1.0, 0.0, 0.0), apart=0.0)


@pytest.mark.parametrize("few", [0, 1 << 22])
def test_the_same_seed_gives_the_same(monkeypatch, few):
    monkeypatch.setattr(link_splits._no_edges, "__defaults__", (few,))
    graph = _graph(30, 60, 0, symmetric=False)
    one, same, other = (link_split(graph, seed) for seed in (3, 3, 4))
    for a, b in zip(one[1:], same[1:], strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    assert one.train.sources.tolist() != other.train.sources.tolist()
    _, negative = _split_pairs(one.train)
    assert not set(negative) & set(pairs(graph))
    assert len(set(negative)) == len(negative)


def test_pairs_that_are_drawn_one_by_one_are_no_links():
    graph = _graph(60, 200, 0, symmetric=False)
    edges = np.array(pairs(graph), np.int32)
    links = link_splits.keys_of_links(graph, edges)
    for seed in range(3):
        drawn = list(map(tuple, link_splits.pairs_without_links(graph, links, 300, (seed,)).tolist()))
        assert not set(drawn) & set(pairs(graph))
        assert len(set(drawn)) == 300
        assert all(u != w for u, w in drawn)


def test_the_split_of_links_is_what_it_was():
    """Pins the draw: a change would silently give published numbers another split."""
    graph = Graph.from_coo(np.arange(10), np.roll(np.arange(10), -1), 10).symmetrise()
    split = link_split(graph, 7, (0.6, 0.2, 0.2), apart=0.5)
    assert [_split_pairs(links) for links in split[1:]] == [
        ([(5, 6), (0, 1), (6, 7)], [(4, 6), (1, 7), (5, 7)]),
        ([(2, 3), (7, 8)], [(3, 7), (4, 8)]),
        ([(8, 9), (4, 5)], [(6, 8), (0, 3)]),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, r"seed must be ≥ 0, got -1"),
        ({"fractions": (0.9, 0.2, 0.2)}, r"add up to at most 1"),
        ({"fractions": (0.9, 0.1)}, r"must be three"),
        ({"apart": 1.0}, r"apart must be ≥ 0 and < 1, got 1\.0"),
        ({"negatives": -1.0}, r"negatives must be ≥ 0, got -1\.0"),
        ({"fractions": (0.0, 0.5, 0.5)}, r"no pair is left to train on: the graph has 4 pairs"),
        ({"graph": Graph.from_coo([0], [0], 2)}, r"no pair is left to train on: the graph has 0 pairs"),
        ({"graph": Graph.from_coo([0, 1], [1, 2], 3).reorder([2, 1, 0])}, r"in the user's order of vertices"),
    ],
)
def test_bad_arguments_of_links(options, message):
    graph = Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 4], 5)
    with pytest.raises(GraphError, match=message):
        link_split(**{"graph": graph, "seed": 0, **options})


@pytest.mark.parametrize("num_vertices", [1, 2, 3])
def test_integers_are_never_guessed(num_vertices: int) -> None:
    """All short arrays of small integers: as a mask, as vertices, refused; both only below three vertices."""
    both = 0
    for length in range(1, 4):
        for values in product(range(-1, num_vertices + 2), repeat=length):
            mask = length == num_vertices and set(values) <= {0, 1}
            vertices = len(set(values)) == length and set(values) <= set(range(num_vertices))
            both += mask and vertices
            if mask == vertices:
                with pytest.raises(GraphError, match="may be a mask or a list" if mask else "neither a mask"):
                    as_mask("train_mask", list(values), num_vertices)
                continue
            expected = np.array(values, bool) if mask else np.isin(np.arange(num_vertices), values)
            np.testing.assert_array_equal(as_mask("train_mask", np.array(values), num_vertices), expected)
    assert (both > 0) == (num_vertices < 3)


def test_without_masks_all_labelled_vertices_train() -> None:
    masks = checked_masks(dict.fromkeys(MASKS), np.array([0, -1, 1], np.int32))
    assert [mask.tolist() for mask in masks.values()] == [[True, False, True], [False] * 3, [False] * 3]
