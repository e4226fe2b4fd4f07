"""Splits of edges: parts that share no pair, message edges that are not targets, negatives that are not edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dorylax.graph import Graph, GraphError, link_split, link_splits
from dorylax.graph.rows import all_rows

FEW = settings(max_examples=40, deadline=None)


def _graph(size: int, num_edges: int, seed: int, symmetric: bool) -> Graph:
    rng = np.random.default_rng(seed)
    graph = Graph.from_coo(*rng.integers(0, size, (2, num_edges)), size)
    return graph.symmetrise() if symmetric else graph


def _edges(graph: Graph) -> list[tuple[int, int]]:
    return list(zip(graph.incoming.neighbours.tolist(), all_rows(graph.incoming.offsets).tolist(), strict=True))


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
    edges = _edges(graph)
    assume(1.5 * len(set(edges)) / (1 + symmetric) + 2 <= v * (v - 1) / (1 + symmetric))  # denser ones are refused
    split = link_split(graph, seed, (0.6, 0.2, 0.2), apart=apart, negatives=0.5)
    of_messages = {frozenset(edge) for edge in _edges(split.graph) if edge[0] != edge[1]}
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
    assert [edge for edge in _edges(split.graph) if edge[0] == edge[1]] == [
        edge for edge in edges if edge[0] == edge[1]
    ]
    assert split.graph.symmetric or not symmetric


def test_parts_have_their_shares():
    split = link_split(_graph(400, 3000, 0, symmetric=True), 0, (0.8, 0.1, 0.1), apart=0.25, negatives=2.0)
    pairs = [int(links.labels.sum()) for links in split[1:]]
    total = sum(pairs) + len(_edges(split.graph)) // 2
    assert pairs == pytest.approx([0.2 * total, 0.1 * total, 0.1 * total], abs=2)
    assert [len(links.labels) for links in split[1:]] == [3 * count for count in pairs]


def test_messages_keep_ids_and_values_of_their_edges():
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 12, (2, 40))
    graph = Graph.from_coo(sources, targets, 12, edge_data={"weight": np.arange(40.0)})
    left = link_split(graph, 0).graph
    ids = np.asarray(left.edge_ids)
    np.testing.assert_array_equal(left.edge_data["weight"], np.arange(40.0)[ids])
    assert sorted(zip(sources[ids].tolist(), targets[ids].tolist(), strict=True)) == sorted(_edges(left))


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
    assert not set(negative) & set(_edges(graph))
    assert len(set(negative)) == len(negative)


def test_pairs_that_are_drawn_one_by_one_are_no_links():
    graph = _graph(60, 200, 0, symmetric=False)
    edges = np.array(_edges(graph), np.int32)
    links = link_splits.keys_of_links(graph, edges)
    for seed in range(3):
        pairs = list(map(tuple, link_splits.pairs_without_links(graph, links, 300, (seed,)).tolist()))
        assert not set(pairs) & set(_edges(graph))
        assert len(set(pairs)) == 300
        assert all(u != w for u, w in pairs)


def test_the_split_is_what_it_was():
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
def test_bad_arguments(options, message):
    graph = Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 4], 5)
    with pytest.raises(GraphError, match=message):
        link_split(**{"graph": graph, "seed": 0, **options})
