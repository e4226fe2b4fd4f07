"""Communities of large graphs by size-constrained label propagation around METIS: coarsen, cut, refine.

A vertex takes the label that most of its neighbours have (U. N. Raghavan, R. Albert and S. Kumara, "Near linear time
algorithm to detect community structures in large-scale networks", Phys. Rev. E 76, 036106, 2007), unless the label's
cluster is full. Clusters are contracted, until METIS can cut the weighted graph of clusters quickly; the same propagation,
with METIS's parts as labels, then refines the parts on each graph on the way back (H. Meyerhenke, P. Sanders and C. Schulz,
"Partitioning complex networks via size-constrained clustering", SEA 2014).

Vertices move by blocks: those of a block see the same labels, those of the next block the new ones. A block is
a few array operations, most of their time a sort of its entries, and the same arguments give the same labels.

When they move between parts, vertices choose a quarter of all parts first, then a quarter of that quarter, and so on:
METIS's parts are smaller than communities may be, and single parts get few votes. Parts may be larger than the mean by
half, because an order of rows need not balance. docs/log/2026-11.md compares the result with METIS's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple, Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

from dorylax.graph.mapped import release
from dorylax.graph.partition.metis import cut
from dorylax.graph.rows import SPAN, spans

# Clusters at which METIS takes over early: another level of contraction would cost quality.
COARSE = 400_000
# Least number of clusters in a part.
_CLUSTERS_PER_PART = 8
# Entries kept of a contracted row, those of most weight: clusters of clusters have ever more neighbours.
HEAVIEST = 32
CLUSTER_ROUNDS, REFINE_ROUNDS = 3, 2
_SLACK = 1.5
LEAST_SHRINKING = 0.9
# Entries of a block. Small graphs get several blocks too: if all move together, neighbours swap labels.
_BLOCK, _LEAST_BLOCKS = 1 << 19, 16
# A candidate in one word, so that the largest is the best: votes, a hash to break ties, label.
LABEL_BITS, _TIE_BITS, _MOST_VOTES = 31, 8, (1 << 23) - 1
LABEL = (1 << LABEL_BITS) - 1


Labels = Int32[np.ndarray, " V"]
Weights = Int64[np.ndarray, " V"]
Longs = Int64[np.ndarray, " n"]


class Block(NamedTuple):
    """Rows `first:last` of a graph; `joins` is the multiplicity of each pair, or None where all are joined once."""

    first: int
    last: int
    offsets: Int64[np.ndarray, " R1"]
    neighbours: Int32[np.ndarray, " n"]
    joins: Int32[np.ndarray, " n"] | None


@runtime_checkable
class Blocks(Protocol):
    """A graph whose rows come block by block, in the same blocks every time; all weights together fit int32."""

    weights: Weights
    num_vertices: int

    def blocks(self) -> Iterator[Block]:
        """All rows."""
        ...


@final
@dataclasses.dataclass(eq=False)
class Rows:
    """An undirected graph of clusters, in memory or memory-mapped."""

    offsets: Int64[np.ndarray, " V1"]
    neighbours: Int32[np.ndarray, " N"]
    joins: Int32[np.ndarray, " N"] | None
    weights: Weights

    def __post_init__(self) -> None:
        self.num_vertices = len(self.offsets) - 1

    def blocks(self) -> Iterator[Block]:
        """See `Blocks`."""
        for first, last in row_blocks(self.offsets):
            start, stop = int(self.offsets[first]), int(self.offsets[last])
            joins = None if self.joins is None else self.joins[start:stop]
            yield Block(first, last, self.offsets[first : last + 1] - start, self.neighbours[start:stop], joins)
            release(self.neighbours, self.joins)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Grouping:
    """Groups of labels, None where each label is its own group, with the weight of each group and its limit."""

    group: Int64[np.ndarray, " L"] | None
    filled: Integer[np.ndarray, " G"]
    limit: int

    def of(self, labels: Integer[np.ndarray, " n"]) -> Integer[np.ndarray, " n"]:
        """The groups of labels."""
        return labels if self.group is None else self.group[labels]


def cluster_limit(num_vertices: int, num_parts: int) -> int:
    """The largest weight of a cluster of a graph whose vertices weigh 1."""
    return max(2, num_vertices // (num_parts * _CLUSTERS_PER_PART))


def parts_of(rows: Rows, num_parts: int, limit: int, *, seed: int, most: int = HEAVIEST) -> Labels:
    """The part of each vertex, in 0 … num_parts-1; near parts have near numbers.

    Args:
        rows: Undirected graph.
        num_parts: P ≥ 1.
        limit: Largest weight of a cluster of several vertices.
        seed: Seed of METIS's random choices.
        most: Entries to keep of a contracted row.
    """
    if rows.num_vertices > COARSE:
        clusters = find_clusters(rows, limit)
        coarse = _contracted(rows, clusters, most)
        if coarse.num_vertices <= LEAST_SHRINKING * len(clusters):
            parts: Labels = parts_of(coarse, num_parts, limit, seed=seed, most=most)[clusters]
            del coarse, clusters
            refine(rows, parts, num_parts)
            return parts
    weights = {"weights": np.ascontiguousarray(rows.weights), "edge_weights": rows.joins}
    return cut(rows.offsets, rows.neighbours, num_parts, seed=seed, bisect=True, **weights)


def find_clusters(graph: Blocks, limit: int) -> Labels:
    """The cluster of each vertex, numbered 0, 1, …; only a single vertex may weigh more than `limit`."""
    labels = np.arange(graph.num_vertices, dtype=np.int32)
    own = [_Grouping(None, graph.weights.astype(np.int32), limit)]
    for _ in range(CLUSTER_ROUNDS):
        _propagate(graph, labels, own)
    del own  # 4 bytes a vertex, before numbering takes more
    return numbered(labels)


def numbered(labels: Labels) -> Labels:
    """Labels below V by new numbers 0, 1, … in their order."""
    used = np.zeros(len(labels), bool)
    used[labels] = True
    numbers = np.cumsum(used, dtype=np.int32)
    numbers -= 1
    found: Labels = numbers[labels]
    return found


def total_weights(labels: Labels, weights: Weights, num_labels: int) -> Int64[np.ndarray, " L"]:
    """The weight of the vertices of each label, in a pass that copies neither array."""
    totals = np.zeros(num_labels)  # of float64, as `bincount` adds: exact below 2⁵³
    for start, stop in spans(len(labels), max(SPAN, num_labels)):
        totals += np.bincount(labels[start:stop], weights[start:stop], num_labels)
    return totals.astype(np.int64)


def _contracted(graph: Rows, clusters: Labels, most: int) -> Rows:
    """The graph of clusters, with so many heaviest neighbours of each and those that have it among theirs."""
    sizes = np.bincount(clusters)
    members = np.argsort(clusters, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    degrees = np.diff(graph.offsets)
    entries = np.concatenate([[0], np.cumsum(degrees[members])])[bounds]
    found = []
    for first, last in row_blocks(entries):  # entries that are dropped never take memory
        own = members[bounds[first] : bounds[last]]
        counts = degrees[own]
        places = np.repeat(graph.offsets[own] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        rows, columns = np.repeat(clusters[own], counts), clusters[graph.neighbours[places]]
        outside = rows != columns
        keys = rows[outside].astype(np.int64) << LABEL_BITS | columns[outside]
        found.append(heaviest(*counted(keys, None if graph.joins is None else graph.joins[places[outside]]), most))
    return joined_clusters(found, total_weights(clusters, graph.weights, len(sizes)))


def joined_clusters(
    found: list[tuple[Int64[np.ndarray, " m"], Int32[np.ndarray, " m"]]], weights: Int64[np.ndarray, " C"]
) -> Rows:
    """The graph of clusters of such weights, of what `heaviest` gave of all of them."""
    from scipy.sparse import coo_array

    num_clusters = len(weights)
    kept, joins = (np.concatenate(parts) for parts in zip(*found, strict=True))
    found.clear()
    ends = (kept >> LABEL_BITS).astype(np.int32), (kept & LABEL).astype(np.int32)
    chosen = coo_array((joins, ends), shape=(num_clusters, num_clusters)).tocsr()
    chosen = chosen.maximum(chosen.T).tocsr()
    return Rows(chosen.indptr.astype(np.int64), chosen.indices.astype(np.int32, copy=False), chosen.data, weights)


def heaviest(keys: Longs, joins: Longs, most: int) -> tuple[Int64[np.ndarray, " m"], Int32[np.ndarray, " m"]]:
    """Of ascending keys (row, neighbour), those of most joins of each row, and their joins."""
    rows = keys >> LABEL_BITS
    lightness = _MOST_VOTES - np.minimum(joins, _MOST_VOTES)
    # Between equals a hash of the pair decides, so that low numbers do not get all edges.
    tie = _hash(np.minimum(rows, keys & LABEL), np.maximum(rows, keys & LABEL))
    order = np.argsort(rows << LABEL_BITS | lightness << _TIE_BITS | tie, kind="stable")
    starts = _run_starts(rows)
    rank = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
    kept = order[rank < most]
    return keys[kept], np.minimum(joins[kept], np.iinfo(np.int32).max).astype(np.int32)


def refine(graph: Blocks, parts: Labels, num_parts: int) -> None:
    """Moves vertices, in place, to the parts where their neighbours are."""
    filled = total_weights(parts, graph.weights, num_parts)
    groupings = []
    num_groups = 1
    while num_groups < num_parts:
        num_groups = min(4 * num_groups, num_parts)
        group = np.arange(num_parts) * num_groups // num_parts
        in_group = np.bincount(group, weights=filled, minlength=num_groups).astype(np.int64)
        groupings.append(_Grouping(group, in_group, int(_SLACK * int(filled.sum()) / num_groups)))
    for _ in range(REFINE_ROUNDS if groupings else 0):
        _propagate(graph, parts, groupings)


def _propagate(graph: Blocks, labels: Labels, groupings: list[_Grouping]) -> None:
    """One round over all vertices, in place. The last grouping has each label for itself, those before are coarser."""
    for block in graph.blocks():
        if not len(block.neighbours):
            continue
        vertices, wanted = _wanted(block, labels, groupings)
        vertices, wanted = _admitted(graph.weights, labels, groupings, vertices, wanted)
        moving, before = graph.weights[vertices].astype(np.int32), labels[vertices]
        for grouping in groupings:
            np.subtract.at(grouping.filled, grouping.of(before), moving)
            np.add.at(grouping.filled, grouping.of(wanted), moving)
        labels[vertices] = wanted


def row_blocks(offsets: Int64[np.ndarray, " V1"]) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of vertices of about as many entries, one vertex at least."""
    num_vertices, entries = len(offsets) - 1, int(offsets[-1])
    step = max(1, min(_BLOCK, entries // _LEAST_BLOCKS))
    first = 0
    while first < num_vertices:
        last = int(np.searchsorted(offsets, offsets[first] + step, side="right")) - 1
        last = min(max(last, first + 1), num_vertices)
        yield first, last
        first = last


def _wanted(block: Block, labels: Labels, groupings: list[_Grouping]) -> tuple[Longs, Int32[np.ndarray, " n"]]:
    """Vertices of a block whose best label differs, ascending, and that label, int32 `[n]`."""
    rows = np.repeat(np.arange(block.first, block.last), np.diff(block.offsets))
    keys, votes = counted(rows << LABEL_BITS | labels[block.neighbours], block.joins)
    rows, candidates = keys >> LABEL_BITS, keys & LABEL
    for grouping in groupings:
        if not len(rows):
            break
        groups = grouping.of(candidates)
        starts = _run_starts(rows << LABEL_BITS | groups)
        best = _best(rows[starts], groups[starts], np.add.reduceat(votes, starts), labels, grouping)
        keep = np.repeat(best, np.diff(starts, append=len(rows)))
        rows, candidates, votes = rows[keep], candidates[keep], votes[keep]
    changed = labels[rows] != candidates
    return rows[changed], candidates[changed].astype(np.int32)


def counted(keys: Int64[np.ndarray, " N"], joins: Int32[np.ndarray, " N"] | None) -> tuple[Longs, Longs]:
    """The different keys, ascending, and how many joins each has (None: 1 in every place)."""
    if joins is None:
        keys = np.sort(keys)
        starts = _run_starts(keys)
        return keys[starts], np.diff(starts, append=len(keys))
    order = np.argsort(keys)
    keys = keys[order]
    starts = _run_starts(keys)
    if not len(starts):
        return keys, keys
    return keys[starts], np.add.reduceat(joins[order], starts, dtype=np.int64)


def _best(rows: Longs, groups: Longs, votes: Longs, labels: Labels, grouping: _Grouping) -> Bool[np.ndarray, " n"]:
    """Which candidates have most votes in their row, at most one of each row; bool `[n]`. Ties keep the present label."""
    own = groups == grouping.of(labels[rows])
    score = 2 * np.minimum(votes, _MOST_VOTES) + own
    words = (score << _TIE_BITS | _hash(rows, groups)) << LABEL_BITS | groups
    words[(grouping.filled[groups] >= grouping.limit) & ~own] = -1
    starts = _run_starts(rows)
    top = np.maximum.reduceat(words, starts)
    best: Bool[np.ndarray, " n"] = (words == np.repeat(top, np.diff(starts, append=len(rows)))) & (words >= 0)
    return best


def _admitted(
    weights: Weights, labels: Labels, groupings: list[_Grouping], vertices: Longs, wanted: Int32[np.ndarray, " n"]
) -> tuple[Int64[np.ndarray, " m"], Int32[np.ndarray, " m"]]:
    """The vertices that fit into the groups of their new labels."""
    for grouping in groupings:
        groups = grouping.of(wanted)
        order = np.argsort(groups, kind="stable")
        coming = np.where(groups == grouping.of(labels[vertices]), 0, weights[vertices])[order]
        before = np.cumsum(coming) - coming
        starts = _run_starts(groups[order])
        before -= np.repeat(before[starts], np.diff(starts, append=len(order)))
        fits = np.empty(len(order), bool)
        fits[order] = (coming == 0) | (grouping.filled[groups[order]] + before + coming <= grouping.limit)
        vertices, wanted = vertices[fits], wanted[fits]
    return vertices, wanted


def _run_starts(values: Integer[np.ndarray, " N"]) -> Longs:
    """Where runs of equal values begin."""
    new = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return np.flatnonzero(new)


def _hash(ones: np.ndarray, others: np.ndarray) -> Int64[np.ndarray, " N"]:
    """`_TIE_BITS` bits of pairs of numbers below 2³¹; the shift brings down bits that all bits of both have changed."""
    mixed = ones.astype(np.int64) * 0x9E3779B1 + others.astype(np.int64) * 0x85EBCA77
    mixed ^= mixed >> 15
    return (mixed * 0x2C1B3C6D >> 24) & ((1 << _TIE_BITS) - 1)
