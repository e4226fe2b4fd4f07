"""Small graphs with everything in them that goes wrong."""

from __future__ import annotations

import numpy as np

from dorylax.abstract_array import abstract_array
from dorylax.graph.graph import Graph
from dorylax.graph.rows import all_rows
from dorylax.graph.shard import DIRECTIONS, Shard, ShardSummary, abstract_rows


def messy_graph(num_vertices: int = 20, num_edges: int = 50, seed: int = 0) -> Graph:
    """Directed, with duplicate edges, loops, a hub, isolated vertices (0, the last) and some without in- or out-edges."""
    rng = np.random.default_rng(seed)
    inner = np.arange(1, num_vertices - 1)
    sources = rng.choice(inner[1:], num_edges)
    targets = rng.choice(inner[:-1], num_edges)
    sources[:3], targets[:3] = sources[3:6], targets[3:6]  # duplicates
    sources[6:8] = targets[6:8]  # loops
    targets[8 : 8 + num_edges // 4] = 2  # a hub
    return Graph.from_coo(sources.astype(np.int64), targets.astype(np.int64), num_vertices=num_vertices)


def ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of each edge, by target."""
    offsets, sources = graph.host_rows()
    return sources, all_rows(offsets)


def pairs(graph: Graph) -> list[tuple[int, int]]:
    """The same as a list."""
    return list(zip(*(one.tolist() for one in ends(graph)), strict=True))


def summary_of(shard: Shard) -> ShardSummary:
    """The numbers of a real shard, as simulations of timing have them."""
    intervals, merge = range(shard.num_intervals), shard.merge()
    names = ("server", "rows", "edges", "bounds", "edge_bounds", "ghost_bounds")
    return ShardSummary(
        **{name: getattr(shard, name) for name in names},
        incoming=abstract_rows(shard.incoming.offsets),
        outgoing=abstract_rows(shard.outgoing.offsets),
        ghosts={way: abstract_array(rows.shape, np.int64) for way, rows in shard.ghosts.items()},
        sends={
            way: tuple(tuple((peer, abstract_array(rows.shape, np.int64)) for peer, rows in one) for one in found)
            for way, found in shard.sends.items()
        },
        reads={way: np.stack([shard.block_counts(way, interval) for interval in intervals]) for way in DIRECTIONS},
        sources=[shard.transposed(interval).offsets for interval in intervals].__getitem__,
        merge=lambda: merge,
    )
