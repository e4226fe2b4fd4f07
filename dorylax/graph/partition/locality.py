"""An order of rows in which gathers find their neighbours in the cache: communities lie together.

METIS finds the communities: recursive bisection into many small parts, numbered so that the halves of a half are next
to each other. It sees only a sample of up to 12 neighbours of each vertex, which makes its time depend on V alone.
Larger graphs take `label_propagation` around METIS.

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

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.cache import cache_directory, drop_oldest
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.partition.label_propagation import Rows, cluster_limit, parts_of
from dorylax.graph.partition.metis import cut, joined
from dorylax.graph.rows import spans
from dorylax.graph.stored import NPY_DAMAGE
from dorylax.graph.validate import as_integers, check_permutation
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
