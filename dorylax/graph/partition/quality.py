"""What a partition costs: cut edges, balance, and the rows that servers send each other.

A *ghost* of a server is a vertex of another server that it reads: for direction "in" the source of one of its in-edges
(forward gathers), for "out" the target of one of its out-edges (backward gathers). A boundary row goes to each server that
has it as a ghost, once per exchange.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Int32, Int64

from dorylax.graph.compressed import CompressedGraph, in_degrees
from dorylax.graph.partition.base import Partition
from dorylax.graph.partition.layout import Layout
from dorylax.graph.rows import Ids, Offsets, rows_between, spans
from dorylax.graph.shard import Direction


@final
@dataclasses.dataclass(frozen=True)
class PartitionReport:
    """The cost of a partition of a graph over P servers; tuples have P numbers, one per server.

    Attributes:
        num_edges: E.
        cut_edges: Edges between different servers.
        vertices, edges: Vertices, and in-edges.
        ghosts_in, ghosts_out: Ghosts over in-edges, and over out-edges.
        received_bytes, sent_bytes: Bytes in an epoch.
    """

    num_edges: int
    cut_edges: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]
    ghosts_in: tuple[int, ...]
    ghosts_out: tuple[int, ...]
    received_bytes: tuple[int, ...]
    sent_bytes: tuple[int, ...]

    @property
    def cut_share(self) -> float:
        """Cut edges as a fraction of all; 0 of a graph without edges."""
        return self.cut_edges / max(self.num_edges, 1)

    @property
    def vertex_balance(self) -> float:
        """Vertices of the largest server relative to the mean, ≥ 1."""
        return _max_over_mean(self.vertices)

    @property
    def edge_balance(self) -> float:
        """In-edges of the heaviest server relative to the mean, ≥ 1; 1 of a graph without edges."""
        return _max_over_mean(self.edges)

    def to_dict(self) -> dict[str, Any]:
        """Attributes and properties as plain values."""
        derived = {name: getattr(self, name) for name in ("cut_share", "vertex_balance", "edge_balance")}
        fields = dataclasses.asdict(self) | derived
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def report(
    graph: CompressedGraph, partition: Partition, *, forward: Sequence[int] = (), backward: Sequence[int] = ()
) -> PartitionReport:
    """Count the cost of a partition.

    Args:
        graph: Graph of the partition.
        partition: The partition.
        forward: Bytes of a row in each exchange over in-edges in an epoch.
        backward: Bytes of a row in each exchange over out-edges.

    Raises:
        InputError: The partition is of another graph.
    """
    partition.check(graph)
    parts, servers = partition.parts, partition.num_parts
    offsets, sources = graph.host_rows()
    edges = np.bincount(parts, np.diff(offsets), servers).astype(np.int64)

    def exchanged(direction: Direction) -> Int64[np.ndarray, "P P"]:
        """Rows that server q sends to server p in one exchange, at `[p, q]`."""
        needed = ghosts(offsets, sources, parts, servers, direction)
        return np.stack([np.bincount(parts[row], minlength=servers) for row in needed])

    into = exchanged("in")
    out = into if graph.symmetric else exchanged("out")
    moved = into * sum(forward) + out * sum(backward)
    return PartitionReport(
        num_edges=int(graph.num_edges),
        cut_edges=sum(
            int(np.count_nonzero(parts[rows_between(offsets, start, stop)] != parts[sources[start:stop]]))
            for start, stop in spans(len(sources))
        ),
        vertices=_tuple(np.bincount(parts, minlength=servers)),
        edges=_tuple(edges),
        ghosts_in=_tuple(into.sum(1)),
        ghosts_out=_tuple(out.sum(1)),
        received_bytes=_tuple(moved.sum(1)),
        sent_bytes=_tuple(moved.sum(0)),
    )


def interval_balance(graph: CompressedGraph, layout: Layout) -> float:
    """In-edges of the heaviest interval relative to the mean of its server, the worst over all servers; ≥ 1.

    The graph is that of the layout, not yet reordered.
    """
    degrees = in_degrees(graph)[layout.order]
    ends = np.concatenate([[0], np.cumsum(degrees)])
    return max(_max_over_mean(np.diff(ends[list(bounds)]).tolist()) for bounds in layout.interval_bounds)


def ghosts(
    offsets: Offsets, sources: Ids, parts: Int32[np.ndarray, " V"], num_parts: int, direction: Direction
) -> Bool[np.ndarray, "P V"]:
    """Ghosts of each server, bool `[P, V]`, in a pass over the edges that holds none of them."""
    needed = np.zeros((num_parts, len(parts)), bool)
    for start, stop in spans(len(sources)):
        targets, ends = rows_between(offsets, start, stop), sources[start:stop]
        if direction == "in":
            needed[parts[targets], ends] = True
        else:
            needed[parts[ends], targets] = True
    needed[parts, np.arange(len(parts))] = False
    return needed


def _max_over_mean(values: Sequence[int]) -> float:
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def _tuple(values: np.ndarray) -> tuple[int, ...]:
    return tuple(values.tolist())
