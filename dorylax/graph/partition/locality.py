"""Communities of a graph, and the order of rows in which gathers find their neighbours in the cache: communities together.

METIS finds the communities: recursive bisection into many small parts, numbered so that the halves of a half are next
to each other. It sees only a sample of up to 12 neighbours of each vertex, which makes its time depend on V alone.
Larger graphs take `label_propagation` around METIS.

A graph on disk is streamed, with a few numbers for each vertex: each round of label propagation passes over the rows on
disk (`EdgeRows`), and looks at another sample of neighbours. Rows need not list both directions: a vertex sees those that
its own row lists. Edges between clusters are dealt to files, from which the graph of clusters is made, on disk again, and
clustered in turn, until it is small enough to be cut in memory. Parts are refined on each graph on the way back. Memory is
13 bytes a vertex, and that of the last graph of clusters, whose number of neighbours follows the room.

Orders of large graphs are kept between runs in `<cache>/orders-1`. The name of a file is a hash of the sample and of
the versions of this module, METIS and NumPy, so no file is ever out of date. A file that holds no permutation is
replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.cache import cache_directory, drop_oldest
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.edge_rows import ENTRIES, MOST, Buckets, EdgeRows
from dorylax.graph.partition.label_propagation import (
    CLUSTER_ROUNDS,
    COARSE,
    HEAVIEST,
    LABEL,
    LABEL_BITS,
    LEAST_SHRINKING,
    REFINE_ROUNDS,
    Block,
    Blocks,
    Labels,
    Rows,
    cluster_limit,
    counted,
    find_clusters,
    heaviest,
    joined_clusters,
    numbered,
    parts_of,
    refine,
    total_weights,
)
from dorylax.graph.partition.metis import cut, joined
from dorylax.graph.rows import count_values, spans, transposed_positions
from dorylax.graph.stored import NPY_DAMAGE
from dorylax.graph.validate import GraphError, as_integers, check_permutation
from dorylax.store.durable import write_file

COMMUNITY = 1024
"""Vertices in a community, about: their rows of a few hundred bytes fit a core's cache together."""

# More parts than this make METIS's time grow for little: communities are larger then.
MOST_COMMUNITIES = 4096
MOST_FOR_METIS = 1_000_000
"""Vertices of the largest graph that METIS takes as it is: 20 … 40 seconds and 2 GiB. With communities that are hard to tell
apart, label propagation gains little time below that."""

_SAMPLE = 12
_SEED = 0

VERSION = 1
"""Raised when the same graph gets other communities than before: kept orders are then no longer read."""

WORTH_KEEPING = 100_000
"""Number of vertices from which an order is kept, because it takes more than about a second."""
_MOST_FILES, _MOST_BYTES = 32, 2**30  # 4 bytes per vertex

# Neighbours of a cluster: at the least, and those for which another level on disk is worth its while.
_LEAST_HEAVIEST, _HELD_HEAVIEST = 4, 16
IN_MEMORY_BYTES_PER_VERTEX = 3000
"""What `communities_of_sample` takes."""
BYTES_PER_VERTEX = 13
"""Labels, what clusters weigh, and clusters' numbers with a mark."""
# Of an entry of the graph of clusters, while it is made symmetric, and of one that METIS cuts (8 bytes for each of 15).
_CLUSTER_ENTRY_BYTES, _METIS_ENTRY_BYTES = 64, 120
_BUCKET_ENTRY_BYTES = 80  # of an edge between clusters, while those of a bucket are counted
_WORKING_BYTES = 120 << 20  # of a block of rows, with the one that is read ahead

_LOG = logging.getLogger(__name__)


def locality_order(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """Rows by community, in the graph's order inside one: `order`, int64 `[V]`, for `Graph.reorder`. It is deterministic."""
    return np.argsort(communities(graph), kind="stable").astype(np.int64, copy=False)


def communities(graph: CompressedGraph) -> Int32[np.ndarray, " V"]:
    """The community of each vertex, int32 `[V]`; near numbers are near each other."""
    if graph.num_vertices <= COMMUNITY:
        return np.zeros(graph.num_vertices, np.int32)
    return communities_of_sample(*sampled(graph), graph.num_vertices)


def communities_of_sample(
    rows: Int32[np.ndarray, " N"], sources: Int32[np.ndarray, " N"], num_vertices: int
) -> Int32[np.ndarray, " V"]:
    """As `communities`, of the result of `sampled` alone; `VERSION` changes with the result."""
    num_communities = min(-(-num_vertices // COMMUNITY), MOST_COMMUNITIES)
    offsets, neighbours = joined(rows, sources, num_vertices)
    if num_vertices > MOST_FOR_METIS:
        limit = cluster_limit(num_vertices, num_communities)
        graph = Rows(offsets, neighbours, None, np.broadcast_to(np.int64(1), num_vertices))
        return parts_of(graph, num_communities, limit, seed=_SEED)
    return cut(offsets, neighbours, num_communities, seed=_SEED, bisect=True)


def sampled(graph: CompressedGraph) -> tuple[Int32[np.ndarray, " N"], Int32[np.ndarray, " N"]]:
    """Pairs (vertex, in-neighbour): up to `_SAMPLE` of each vertex, evenly spread over its row from a random start."""
    offsets, sources = graph.host_rows()
    taken = np.minimum(np.diff(offsets), _SAMPLE)
    rows = np.repeat(np.arange(len(taken), dtype=np.int32), taken)
    sampled = np.empty(len(rows), np.int32)
    starts = np.random.default_rng(_SEED)
    filled = 0
    for first, last in spans(len(taken)):  # 64-bit steps of all rows together would take more than METIS's graph
        own = taken[first:last]
        row = np.repeat(np.arange(first, last), own)
        number = np.arange(len(row)) - np.repeat(np.cumsum(own) - own, own)
        degrees = offsets[row + 1] - offsets[row]
        places = offsets[row] + ((number + starts.random(len(row))) * (degrees / taken[row])).astype(np.int64)
        sampled[filled : filled + len(row)] = sources[np.minimum(places, offsets[row + 1] - 1)]
        filled += len(row)
    return rows, sampled


def cached_locality_order(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """Return `locality_order(graph)`, from the cache if the graph has at least `WORTH_KEEPING` vertices."""
    num_vertices = graph.num_vertices
    if num_vertices < max(WORTH_KEEPING, COMMUNITY + 1):
        return locality_order(graph)
    import pymetis

    rows, sources = sampled(graph)
    made_by = f"{VERSION} {num_vertices} {len(rows)} pymetis {pymetis.version} numpy {np.__version__}\n"
    key = hashlib.sha256(made_by.encode())
    key.update(rows.data)
    key.update(sources.data)
    file = cache_directory() / "orders-1" / f"{key.hexdigest()}.npy"
    try:
        kept = as_integers("order", np.load(file, allow_pickle=False))
        check_permutation("order", kept, num_vertices)
        with contextlib.suppress(OSError):  # a read-only cache
            os.utime(file)
        _LOG.info("order of vertices read from %s", file)
        return kept.astype(np.int64)
    except FileNotFoundError:
        pass
    except NPY_DAMAGE as error:
        _LOG.warning("the kept order %s is damaged, computing it again: %s", file, error)
    order = np.argsort(communities_of_sample(rows, sources, num_vertices), kind="stable").astype(np.int32)
    content = io.BytesIO()
    np.save(content, order)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content.getvalue())
        drop_oldest(file, most_files=_MOST_FILES, most_bytes=_MOST_BYTES)
    except OSError as error:  # a full disk only costs time in the next run
        _LOG.warning("could not keep the order of vertices as %s: %s", file, error)
    return order.astype(np.int64)


def communities_within(
    rows: EdgeRows, scratch: Path, room: int, told: Callable[[int, int], object] = lambda *_: None
) -> Labels:
    """As `streamed_communities`; where there is room for a sample by `communities_of_sample`, which is better."""
    if rows.num_vertices <= COMMUNITY or room < IN_MEMORY_BYTES_PER_VERTEX * rows.num_vertices:
        return streamed_communities(rows, scratch, room, told)
    ends, others = [], []
    for block in _Sample(rows, told, 1).blocks():
        ends.append(np.repeat(np.arange(block.first, block.last, dtype=np.int32), np.diff(block.offsets)))
        others.append(block.neighbours)
    return communities_of_sample(np.concatenate(ends), np.concatenate(others), rows.num_vertices)


def streamed_communities(
    rows: EdgeRows, scratch: Path, room: int, told: Callable[[int, int], object] = lambda *_: None
) -> Labels:
    """The community of each vertex; near numbers are near each other.

    Args:
        rows: Rows of the graph, in either direction.
        scratch: Folder for files of up to 8 bytes for each of 12 neighbours of a vertex; they are removed.
        room: Bytes of memory to use.
        told: Called with the numbers of entries that have been read and will be read.

    Raises:
        GraphError: The rows are damaged, or there is too little room.
        InputError: METIS cannot hold the graph of clusters.
    """
    num_vertices = rows.num_vertices
    if num_vertices <= COMMUNITY:
        return np.zeros(num_vertices, np.int32)
    left = room - BYTES_PER_VERTEX * num_vertices - _WORKING_BYTES
    if left <= 0:
        least = BYTES_PER_VERTEX * num_vertices + _WORKING_BYTES
        raise GraphError(
            f"communities of {num_vertices:,} vertices take at least {-(-least // 2**20):,} MiB beside what the program "
            f"takes, and {room >> 20:,} MiB are left: give more (--memory)"
        )
    num_parts = min(-(-num_vertices // COMMUNITY), MOST_COMMUNITIES)
    limit = cluster_limit(num_vertices, num_parts)
    graphs: list[Blocks] = [_Sample(rows, told, CLUSTER_ROUNDS + 1 + REFINE_ROUNDS)]
    clusters: list[Labels] = []
    while True:
        found = find_clusters(graphs[-1], limit)
        if not clusters:
            found = _packed(found, limit)
        clusters.append(found)
        coarse = _contracted(graphs[-1], found, scratch / f"clusters-{len(clusters)}", left)
        if coarse.num_vertices <= _held_clusters(left, _HELD_HEAVIEST):
            break
        if coarse.num_vertices > LEAST_SHRINKING * len(found):
            if coarse.num_vertices <= _held_clusters(left, _LEAST_HEAVIEST):
                break
            raise GraphError(
                f"{coarse.num_vertices:,} clusters of vertices are more than the {_held_clusters(left, _LEAST_HEAVIEST):,} "
                "that there is memory for, and do not become fewer: give more (--memory)"
            )
        graphs.append(coarse)
    held = _held(coarse, _heaviest_that_fit(left, coarse.num_vertices))
    del coarse
    most = _heaviest_that_fit(left, min(held.num_vertices, COARSE))
    parts = parts_of(held, num_parts, limit, seed=_SEED, most=most)
    del held
    while clusters:
        parts = parts[clusters.pop()]
        refine(graphs.pop(), parts, num_parts)
    return parts


def _held_clusters(room: int, most: int) -> int:
    """Clusters whose graph there is room for, with so many neighbours of each, which may have it among theirs too."""
    return room // (2 * _CLUSTER_ENTRY_BYTES * most)


def _heaviest_that_fit(room: int, num_clusters: int) -> int:
    """Neighbours of each cluster that there is room for, while the graph is made and while METIS cuts it."""
    entry = max(_CLUSTER_ENTRY_BYTES * num_clusters, _METIS_ENTRY_BYTES * min(num_clusters, COARSE))
    return min(HEAVIEST, max(_LEAST_HEAVIEST, room // (2 * entry)))


def order_of(labels: Labels) -> Labels:
    """Rows by label, in their order inside one; int32 `[V]`, a counting sort in two passes."""
    counts = count_values(labels, int(labels.max(initial=0)) + 1)
    return transposed_positions(np.concatenate([[0], np.cumsum(counts)]), labels)


@final
class _Sample:
    """Up to 12 neighbours of each vertex, read again for every round (`label_propagation.Blocks`)."""

    def __init__(self, rows: EdgeRows, told: Callable[[int, int], object], rounds: int) -> None:
        self._rows, self._round = rows, 0
        self._told, self._total = told, rounds * rows.num_edges
        self.num_vertices = rows.num_vertices
        self.weights = np.broadcast_to(np.int64(1), rows.num_vertices)

    def blocks(self) -> Iterator[Block]:
        """See `Blocks`."""
        before = self._round * self._rows.num_edges
        self._round += 1
        for number, block in enumerate(self._rows.blocks(ENTRIES)):
            start = np.random.default_rng((_SEED, self._round, number))
            yield Block(block.first, block.last, *_sampled(block.first, block.offsets, block.entries, start), None)
            self._told(before + block.start + len(block.entries), self._total)


def _sampled(
    first: int, offsets: Int64[np.ndarray, " n1"], neighbours: Int32[np.ndarray, " e"], start: np.random.Generator
) -> tuple[Int64[np.ndarray, " n1"], Int32[np.ndarray, " s"]]:
    """Up to `_SAMPLE` entries of each row, evenly spread over it from a random start; loops are skipped."""
    degrees = np.diff(offsets)
    if degrees.max(initial=0) > _SAMPLE:
        taken = np.minimum(degrees, _SAMPLE)
        ends = np.cumsum(taken)
        number = np.arange(ends[-1]) - np.repeat(ends - taken, taken)
        # One random start a row: the steps of a row are its degree apart, in twelfths.
        step = degrees / np.maximum(taken, 1)
        begin = offsets[:-1] + start.random(len(degrees)) * step
        places = (np.repeat(begin, taken) + number * np.repeat(step, taken)).astype(np.int64)
        neighbours = neighbours[np.minimum(places, np.repeat(offsets[1:] - 1, taken))]
        degrees = taken
    rows = np.repeat(np.arange(first, first + len(degrees), dtype=np.int32), degrees)
    others = neighbours != rows
    if not others.all():
        neighbours = neighbours[others]
        degrees = np.bincount(rows[others] - first, minlength=len(degrees))
    return np.concatenate([[0], np.cumsum(degrees)]), neighbours


def _held(graph: Rows, most: int) -> Rows:
    """The graph in memory, with so many neighbours of each cluster and those that have it among theirs."""
    found = []
    for block in graph.blocks():
        degrees = np.diff(block.offsets)
        rank = np.arange(len(block.neighbours)) - np.repeat(block.offsets[:-1], degrees)
        kept = rank < most
        rows = np.repeat(np.arange(block.first, block.last), degrees)[kept]
        assert block.joins is not None
        found.append((rows << LABEL_BITS | block.neighbours[kept], block.joins[kept]))
    return joined_clusters(found, graph.weights)


def _packed(clusters: Labels, limit: int) -> Labels:
    """Clusters, with adjacent single vertices joined if the propagation hardly reduced their number."""
    sizes = count_values(clusters, int(clusters.max()) + 1)
    if len(sizes) <= LEAST_SHRINKING * len(clusters):
        return clusters
    alone = np.flatnonzero(sizes == 1).astype(np.int32)
    first = np.arange(len(sizes), dtype=np.int32)
    first[alone] = alone[np.arange(len(alone)) // limit * limit]
    return numbered(first[clusters])


def _contracted(graph: Blocks, clusters: Labels, file: Path, room: int) -> Rows:
    """The graph of clusters: of each row the heaviest entries, those first, mapped from files without names."""
    num_clusters = int(clusters.max()) + 1
    weights = total_weights(clusters, graph.weights, num_clusters)
    most, width = (_SAMPLE, 2) if isinstance(graph, _Sample) else (HEAVIEST, 3)  # numbers of an edge: ends, and joins
    entries = most * graph.num_vertices
    number = min(MOST, max(1, -(-entries * _BUCKET_ENTRY_BYTES // max(1, room // 2))))
    per = -(-num_clusters // number)
    with Buckets(file.parent, f"{file.name}-between", -(-num_clusters // per)) as buckets:
        for block in graph.blocks():
            rows = np.repeat(clusters[block.first : block.last], np.diff(block.offsets))
            columns = clusters[block.neighbours]
            outside = np.flatnonzero(rows != columns)
            between = (rows, columns) if block.joins is None else (rows, columns, block.joins)
            buckets.deal(rows[outside] // per, np.stack([array[outside] for array in between], axis=1))
    offsets = np.zeros(num_clusters + 1, np.int64)
    paths = file, file.with_name(f"{file.name}-joins")
    with paths[0].open("wb") as neighbours, paths[1].open("wb") as joins:
        for bucket in buckets:
            pairs = buckets.read(bucket, np.dtype(np.int32)).reshape(-1, width)
            keys = pairs[:, 0].astype(np.int64) << LABEL_BITS | pairs[:, 1]
            kept, times = heaviest(*counted(keys, pairs[:, 2] if width == 3 else None), HEAVIEST)
            del pairs, keys  # before the next are read
            first = bucket * per
            counts = np.bincount((kept >> LABEL_BITS) - first)
            offsets[first + 1 : first + 1 + len(counts)] = counts
            neighbours.write((kept & LABEL).astype(np.int32).data)
            joins.write(times.data)
    found, times = (np.memmap(path, np.int32, "r") if path.stat().st_size else np.zeros(0, np.int32) for path in paths)
    for path in paths:  # the disk space is free again when the arrays are gone
        path.unlink()
    return Rows(np.cumsum(offsets), found, times, weights)
