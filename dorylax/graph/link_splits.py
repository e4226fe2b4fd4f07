"""Splits of edges, for models that predict links: edges that carry messages, and pairs to predict.

Both directions of a pair of vertices, and equal edges, are always in the same part. All draws are the same for the same seed
on every machine and NumPy version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.graph import Graph
from dorylax.graph.rows import all_rows
from dorylax.graph.splits import of_three, part_of, shuffled
from dorylax.graph.transform import part
from dorylax.graph.validate import GraphError

_FEW_PAIRS = 1 << 22  # so many pairs of vertices are all listed; of more, pairs are drawn


class Links(NamedTuple):
    """Pairs of vertices to classify, edges first.

    Attributes:
        sources: int32 `[N]`.
        targets: int32 `[N]`.
        labels: float32 `[N]`: 1 for edges of the graph, 0 for pairs that are none.
    """

    sources: np.ndarray
    targets: np.ndarray
    labels: np.ndarray


class LinkSplit(NamedTuple):
    """A graph whose edges carry messages, and pairs to train on, validate and test with."""

    graph: Graph
    train: Links
    val: Links
    test: Links


def link_split(
    graph: Graph,
    seed: int,
    fractions: Sequence[float] = (0.85, 0.05, 0.1),
    *,
    apart: float = 0.3,
    negatives: float = 1.0,
) -> LinkSplit:
    """Splits the edges of a graph by chance, and draws pairs of vertices that are none.

    Self-loops are no links: they stay in the graph of messages.

    Args:
        graph: E edges. Of a symmetric graph a link is a pair of vertices, listed once, smaller vertex first; of another
            it is a directed edge.
        seed: 0 or more.
        fractions: Fractions of the pairs for training, validation and test; the rest is dropped.
        apart: Share of training pairs to predict, which carry no messages; the others only carry messages. 0: every
            training pair does both, so that a model sees the edge that it predicts.
        negatives: how many pairs that are not edges to draw for each that is; all are distinct.

    Returns:
        The graph of messages, whose edges keep ids and values (`edge_inputs[name][split.graph.edge_ids]` are those of
        others), and which holds no edge of validation, test or, with `apart`, training; and the links. Messages
        come from training pairs only, in validation and test too.

    Raises:
        GraphError: numbers out of range, too few edges, more negatives than there are, or a graph that was reordered.
    """
    if graph.vertex_ids is not None:
        raise GraphError("link_split takes a graph in the user's order of vertices, and this one was reordered")
    of_three(fractions)
    if not 0 <= apart < 1:
        raise GraphError(f"apart must be ≥ 0 and < 1, got {apart}")
    if not 0 <= negatives < float("inf"):
        raise GraphError(f"negatives must be ≥ 0, got {negatives}")
    offsets, sources = graph.host_rows()
    targets = all_rows(offsets)
    keys = _keys(graph, np.minimum(sources, targets), np.maximum(sources, targets))
    pairs, pair_of = np.unique(keys, return_inverse=True)
    is_loop = sources == targets
    linked = np.zeros(len(pairs), bool)
    linked[pair_of[~is_loop]] = True
    parts = _parts(np.flatnonzero(linked), seed, fractions, apart)

    messages = np.isin(pair_of, parts[0]) | is_loop
    left = part(graph, messages, dict(graph.edge_data), symmetric=graph.symmetric or None, self_loops=graph.self_loops)
    if graph.symmetric:
        edges, found = pairs[linked], [pairs[chosen] for chosen in parts[1:]]
    else:
        keys = _keys(graph, sources, targets)
        edges, found = np.unique(keys[~is_loop]), [np.unique(keys[np.isin(pair_of, chosen)]) for chosen in parts[1:]]
    wanted = np.cumsum([round(negatives * len(links)) for links in found])
    drawn = np.split(_no_edges(graph, edges, int(wanted[-1]), (seed, 1)), wanted[:-1])
    return LinkSplit(left, *(_links(graph, *both) for both in zip(found, drawn, strict=True)))


def _parts(pool: np.ndarray, seed: int, fractions: Sequence[float], apart: float) -> list[np.ndarray]:
    """Of the pairs: those of messages, then those to train on, validate and test with."""
    pool = pool[shuffled(len(pool), seed)]
    numbers = part_of(np.arange(len(pool)), fractions)
    train, val, test = (pool[numbers == number] for number in range(3))
    parts = [train, train, val, test]
    if apart:
        chosen = part_of(np.arange(len(train)), (apart,)) == 0
        parts[:2] = train[~chosen], train[chosen]
    if not len(parts[1]):
        raise GraphError(
            f"no pair is left to train on: the graph has {len(pool)} pairs of joined vertices, of which fractions[0] = "
            f"{fractions[0]} and apart = {apart} take {len(train)} and none"
        )
    return parts


def _keys(graph: Graph, sources: np.ndarray, targets: np.ndarray) -> Int64[np.ndarray, " N"]:
    """One number for each pair of vertices."""
    keys: np.ndarray = sources * np.int64(graph.num_vertices) + targets
    return keys


def _links(graph: Graph, edges: np.ndarray, others: np.ndarray) -> Links:
    sources, targets = np.divmod(np.concatenate([edges, others]), graph.num_vertices)
    labels = np.repeat(np.array([1, 0], np.float32), [len(edges), len(others)])
    return Links(sources.astype(np.int32), targets.astype(np.int32), labels)


def keys_of_links(graph: Graph, pairs: Int32[np.ndarray, "N 2"]) -> Int64[np.ndarray, " K"]:
    """Pairs of vertices as `pairs_without_links` takes them: a number for each, sorted and distinct."""
    return np.unique(_keys(graph, pairs[:, 0], pairs[:, 1]))


def pairs_without_links(
    graph: Graph, links: Int64[np.ndarray, " M"], wanted: int, seed: Sequence[int]
) -> Int32[np.ndarray, "N 2"]:
    """Distinct pairs of vertices that are neither these `links` nor loops, in an order drawn from a seed of numbers ≥ 0.

    `links` is a result of `keys_of_links`. The graph defines the number of vertices, and whether a pair has a
    direction. Raises a GraphError if there are fewer pairs than wanted.
    """
    # Listing all pairs takes a second, and this is done in every epoch; drawing is slow only where few are left.
    found = _no_edges(graph, links, wanted, seed, listed=min(_FEW_PAIRS, 4 * (wanted + len(links))))
    return np.stack(np.divmod(found, graph.num_vertices), axis=1).astype(np.int32)


def _no_edges(
    graph: Graph, edges: np.ndarray, wanted: int, seed: Sequence[int], listed: int = _FEW_PAIRS
) -> Int64[np.ndarray, " N"]:
    """As many distinct pairs that are neither edges nor loops, in random order; of so few in all, all are listed first."""
    size = int(graph.num_vertices)
    possible = size * (size - 1) // (2 if graph.symmetric else 1)
    if wanted > possible - len(edges):
        raise GraphError(
            f"negatives ask for {wanted} pairs that are not edges, but there are only {possible - len(edges)}: "
            "lower negatives"
        )
    words = np.random.PCG64(list(seed))
    if possible <= listed:
        unjoined = np.tri(size, k=-1, dtype=bool).T.copy() if graph.symmetric else ~np.eye(size, dtype=bool)
        unjoined.reshape(-1)[edges] = False
        free = np.flatnonzero(unjoined)
        return free[np.argsort(words.random_raw(len(free)), kind="stable")[:wanted]]
    drawn = np.zeros(0, np.int64)
    while len(drawn) < wanted:
        more = _drawn(graph, words, 2 * (wanted - len(drawn)) + 1024)
        place = np.minimum(np.searchsorted(edges, more), max(len(edges) - 1, 0))
        drawn = np.concatenate([drawn, more[edges[place] != more] if len(edges) else more])
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
    return drawn[:wanted]


def _drawn(graph: Graph, words: Any, count: int) -> Int64[np.ndarray, " N"]:
    """Pairs by chance, without loops."""
    ends = (words.random_raw(2 * count) % np.uint64(graph.num_vertices)).astype(np.int64).reshape(count, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    if graph.symmetric:
        ends.sort(axis=1)
    return _keys(graph, ends[:, 0], ends[:, 1])
