"""The graph: the data contract of the library.

A `Graph` is a directed multigraph on vertices 0 … V-1 in compressed sparse rows, twice: *incoming* (row v lists the
sources of v's in-edges; forward gathers read it) and *outgoing* (row u lists the targets of u's out-edges; backward
gathers read it). It says nothing about features or labels (see `dorylax.graph.dataset`), and it does not build itself
from other formats (see `dorylax.graph.build`).

Edge order. The position of an edge in the incoming rows, sorted by (target, source), is its *edge id*; every per-edge
array `[E, …]` is in that order. `outgoing.edges` gives the edge id of each outgoing entry.

Two representations of one class. On the host the arrays are NumPy (memory-mapped ones included) and offsets are int64.
Inside JAX a graph is a pytree: without x64, JAX would silently narrow int64 to int32 and offsets past 2³¹ would be
wrong, so offsets travel as their little-endian 32-bit halves, uint32 `[V+1, 2]`, which is the same memory (no copy).
"""

from __future__ import annotations

import dataclasses
import sys
from functools import cached_property
from typing import Any, Literal, final

import jax
import numpy as np

from dorylax.graph.transpose import transpose

SelfLoops = Literal["none", "some", "all"]

if sys.byteorder != "little":  # the uint32 view of int64 offsets below assumes it
    raise ImportError(f"dorylax needs a little-endian machine, this one is {sys.byteorder}-endian")


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Adjacency:
    """Compressed sparse rows of a graph, in one direction.

    Attributes:
        offsets: row r's entries are `offsets[r]:offsets[r+1]`; int64 `[R+1]` on the host, uint32 `[R+1, 2]` inside JAX.
        neighbours: the vertex at the other end of each entry, int32 `[E]`.
        edges: the edge id of each entry, int32 `[E]`; None where entry k is edge k.
    """

    offsets: Any
    neighbours: Any
    edges: Any = None

    @property
    def num_rows(self) -> int:
        """Number of rows R."""
        return int(self.offsets.shape[0]) - 1 if isinstance(self.offsets, np.ndarray) else self.offsets.shape[0] - 1


@final
@jax.tree_util.register_pytree_node_class
class Graph:
    """Directed multigraph in compressed sparse rows; see the module's text for the contract.

    Make one with `Graph.from_coo`, `from_scipy`, `from_networkx`, `from_edge_index` or `from_npz`, which validate; the
    constructor trusts its arguments.

    Args:
        offsets: in-edge row offsets, int64 `[V+1]`.
        sources: source vertex of each in-edge, ascending inside a row, int32 `[E]`.
        outgoing: the same edges by source; made on first use when not given.
        symmetric: whether u → v comes with v → u (with the same multiplicity); both directions then share arrays.
        self_loops: whether no vertex, some vertices or all vertices have an edge to themselves.
        vertex_ids: the user's id of the vertex in row r, int32 `[V]`; None where row r is vertex r (see `reorder`).
        edge_ids: the edge id, in the graph before `reorder`, of each edge, int32 `[E]`; None where unchanged.
    """

    def __init__(
        self,
        offsets: Any,
        sources: Any,
        *,
        outgoing: Adjacency | None = None,
        symmetric: bool = False,
        self_loops: SelfLoops = "none",
        vertex_ids: Any = None,
        edge_ids: Any = None,
    ) -> None:
        self.incoming = Adjacency(offsets, sources)
        self.symmetric = symmetric
        self.self_loops: SelfLoops = self_loops
        self.vertex_ids = vertex_ids
        self.edge_ids = edge_ids
        if outgoing is not None:
            self.__dict__["outgoing"] = outgoing

    @cached_property
    def outgoing(self) -> Adjacency:
        """The edges by source; computed (one counting sort, O(V + E)) and kept on first use."""
        offsets, targets, edges = transpose(self.incoming.offsets, self.incoming.neighbours, self.num_vertices)
        if self.symmetric:
            return Adjacency(self.incoming.offsets, self.incoming.neighbours, edges)
        return Adjacency(offsets, targets, edges)

    @property
    def num_vertices(self) -> int:
        """V, the number of vertices."""
        return self.incoming.num_rows

    @property
    def num_edges(self) -> int:
        """E, the number of directed edges; an undirected edge counts twice."""
        return self.incoming.neighbours.shape[0]  # type: ignore[no-any-return]

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[bool, SelfLoops]]:
        """Leaves: arrays as JAX may see them. Static: what may change which operations are traced."""
        out = self.outgoing
        reverse = (None, None) if self.symmetric else (as_words(out.offsets), out.neighbours)
        leaves = (as_words(self.incoming.offsets), self.incoming.neighbours, *reverse, out.edges)
        return (*leaves, self.vertex_ids, self.edge_ids), (self.symmetric, self.self_loops)

    @classmethod
    def tree_unflatten(cls, static: tuple[bool, SelfLoops], leaves: tuple[Any, ...]) -> Graph:
        """Inverse of `tree_flatten`; takes any leaves, as JAX requires."""
        offsets, sources, out_offsets, targets, out_edges, vertex_ids, edge_ids = leaves
        symmetric, self_loops = static
        outgoing = Adjacency(offsets, sources, out_edges) if symmetric else Adjacency(out_offsets, targets, out_edges)
        return cls(
            offsets,
            sources,
            outgoing=outgoing,
            symmetric=symmetric,
            self_loops=self_loops,
            vertex_ids=vertex_ids,
            edge_ids=edge_ids,
        )

    def __repr__(self) -> str:
        kind = "symmetric" if self.symmetric else "directed"
        return f"Graph({self.num_vertices} vertices, {self.num_edges} edges, {kind}, self-loops: {self.self_loops})"


def as_words(offsets: Any) -> Any:
    """Offsets as JAX may carry them: int64 `[R+1]` on the host → uint32 `[R+1, 2]`, low word first, without a copy."""
    if isinstance(offsets, np.ndarray) and offsets.dtype == np.int64:
        return np.ascontiguousarray(offsets).view(np.uint32).reshape(-1, 2)
    return offsets


def as_int64(offsets: Any) -> np.ndarray:
    """Inverse of `as_words`, on the host: concrete offsets in either form → int64 `[R+1]`."""
    array = np.asarray(offsets)
    return array if array.dtype == np.int64 else np.ascontiguousarray(array).view(np.int64).reshape(-1)
