"""Cuts a graph into the shards of a layout, one at a time: memory holds the graph and one shard.

The laid-out graph, `graph.reorder(layout.order)`, is never made: rows of a shard come from the given graph. Ghosts of all
servers take a bit more than a byte for each vertex and server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.graph.compressed import Adjacency, CompressedGraph
from dorylax.graph.partition.layout import Layout
from dorylax.graph.partition.quality import ghosts
from dorylax.graph.reorder import permuted
from dorylax.graph.rows import inverse_permutation, spans, transpose
from dorylax.graph.shard import Direction, RowsByPeer, Shard


@final
class Cutting:
    """A graph, not laid out, that is cut into the shards of its layout; a ValueError refuses a layout of another size.

    Arrays that the graph computes on first use are not kept with it.
    """

    def __init__(self, graph: CompressedGraph, layout: Layout) -> None:
        if layout.server_bounds[-1] != graph.num_vertices:
            raise ValueError(f"the layout has {layout.server_bounds[-1]} rows, the graph {graph.num_vertices}")
        self._graph, self._layout = copy.copy(graph), layout
        self._offsets, self._sources = graph.host_rows()
        order = layout.order.astype(np.int32)
        self._place = inverse_permutation(order)
        servers = np.arange(layout.num_servers, dtype=np.int32)
        parts = np.repeat(servers, np.diff(layout.server_bounds))[self._place]
        self._ends = np.zeros(len(order) + 1, np.int64)
        np.cumsum(np.diff(self._offsets)[order], out=self._ends[1:])
        self._needed = {}
        directions: tuple[Direction, ...] = ("in",) if graph.symmetric else ("in", "out")
        for direction in directions:
            found = ghosts(self._offsets, self._sources, parts, len(servers), direction)
            for server in servers:  # row by row, in place
                found[server] = found[server][order]
            self._needed[direction] = found

    def __iter__(self) -> Iterator[Shard]:
        """The shards of all servers, in order, each made on demand."""
        return map(self.shard, range(self._layout.num_servers))

    def shard(self, server: int) -> Shard:
        """The shard of a server, in O(V·P + E / P)."""
        layout = self._layout
        first, last = layout.server_bounds[server : server + 2]
        own = np.array(layout.interval_bounds[server], np.int64)
        edges = self._ends[own]
        found = {direction: np.flatnonzero(needed[server]) for direction, needed in self._needed.items()}
        bounds = {direction: np.searchsorted(held, layout.all_bounds) for direction, held in found.items()}
        sends = {
            direction: tuple(self._wanted(direction, start, stop, first) for start, stop in pairwise(own.tolist()))
            for direction in found
        }
        incoming = outgoing = self._local(Adjacency(self._offsets, self._sources), first, last, found["in"])
        if "out" in found:
            outgoing = self._local(self._outgoing, first, last, found["out"])
        tables: tuple[dict[Direction, Any], ...] = (found, bounds, sends)
        for table in tables:  # in a symmetric graph both directions are the same rows
            table.setdefault("out", table["in"])
        return Shard(
            server=server,
            rows=(first, last),
            edges=(int(edges[0]), int(edges[-1])),
            bounds=tuple((own - first).tolist()),
            edge_bounds=tuple((edges - edges[0]).tolist()),
            incoming=incoming,
            outgoing=outgoing,
            ghosts=found,
            ghost_bounds=bounds,
            sends=sends,
            pushes=self._wanted("in", first, last, first),
        )

    def edge_places(self, server: int) -> Int32[np.ndarray, " e"]:
        """The place of each of a server's in-edges in per-edge arrays of the graph; a GraphError if edges have no ids."""
        order = self._graph.edge_order
        rows = self._layout.order[slice(*self._layout.server_bounds[server : server + 2])]
        _, slots = permuted(self._offsets, self._sources, rows, self._place, with_positions=True)
        if order is not None:
            for start, stop in spans(len(slots)):
                slots[start:stop] = order[slots[start:stop]]
        return slots

    @cached_property
    def _outgoing(self) -> Adjacency:
        """The edges by source."""
        made = self._graph.__dict__.get("outgoing")
        if made is not None:
            return Adjacency(np.asarray(made.offsets), np.asarray(made.neighbours))
        offsets, targets, _ = transpose(self._offsets, self._sources, self._graph.num_vertices, with_positions=False)
        return Adjacency(offsets, targets)

    def _wanted(self, direction: Direction, start: int, stop: int, first: int) -> RowsByPeer:
        """`(peer, rows)` of the peers with ghosts in `start:stop`, in the numbering of a server from row `first`."""
        found = ((peer, np.flatnonzero(row[start:stop])) for peer, row in enumerate(self._needed[direction]))
        return tuple((peer, rows + (start - first)) for peer, rows in found if len(rows))

    def _local(self, rows: Adjacency, first: int, last: int, held: Int64[np.ndarray, " G"]) -> Adjacency:
        """Rows `first:last` of the laid-out graph in local numbering, whose ghosts are `held`."""
        local = np.empty(self._graph.num_vertices, np.int32)
        local[first:last] = np.arange(last - first, dtype=np.int32)
        local[held] = np.arange(last - first, last - first + len(held), dtype=np.int32)
        offsets, found = permuted(rows.offsets, rows.neighbours, self._layout.order[first:last], self._place)
        for start, stop in spans(len(found)):  # in place
            found[start:stop] = local[found[start:stop]]
        return Adjacency(offsets, found)
