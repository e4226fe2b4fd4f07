"""The data contract of the library: a directed multigraph on vertices 0 … V-1 in compressed sparse rows, twice.

*Incoming*: row v lists the sources of v's in-edges; forward gathers read it. *Outgoing*: row u lists the targets of u's
out-edges; backward gathers read it. It says nothing about features or labels (see `dorylax.graph.dataset`).

Whatever makes, changes or reads graphs is written against this class. Its one subclass, `dorylax.graph.graph.Graph`, stands
above all that and offers it as methods.

Edge order. Per-edge arrays `[E, …]` are in ascending order of edge ids, and an edge's *id* is its place in the user's
arrays (of equal edges that were coalesced that of the first; `symmetrise` and `with_self_loops` give new edges ids after all
others). Rows are sorted by (target, source); a position in the incoming rows is a *slot*, an internal matter: what
`outgoing.edges` and all below the public operators count by. `edge_order` leads from slots to places in per-edge arrays.

Two representations of one class. On the host the arrays are NumPy (memory-mapped ones included) and offsets are int64.
Inside JAX a graph is a pytree: without x64, JAX would silently narrow int64 to int32 and offsets past 2³¹ would be
wrong, so offsets travel as their little-endian 32-bit halves, uint32 `[V+1, 2]`, which is the same memory (no copy).
Edge ids do not: past 2³¹ - 1 edges there are none (`CompressedGraph.edge_ids_fit`), and only what never reads them applies.

`assemble` makes a graph of valid rows, and detects symmetry. A sum of hashes of all edges, which does not depend on their
order, shows in one pass whether a graph is its own transpose (AdHash: M. Bellare and D. Micciancio, "A new paradigm for
collision-free hashing", EUROCRYPT 1997). Graphs that were not made to collide do so with probability 2⁻⁶⁴.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar, final

import numpy as np
from jaxtyping import Int32, Int64, UInt64

from dorylax.graph.rows import (
    BySlot,
    EdgeOrder,
    count_values,
    edge_ids_fit,
    inverse_permutation,
    places_of_slots,
    rows_between,
    rows_with_loops,
    spans,
    transpose,
    transposed_positions,
)
from dorylax.graph.validate import GraphError

SelfLoops = Literal["none", "some", "all"]
Size = Any
"""An int; while a model is traced for any size, a symbolic dimension of JAX."""

if sys.byteorder != "little":  # the uint32 view of int64 offsets below assumes it
    raise ImportError(f"dorylax needs a little-endian machine, this one is {sys.byteorder}-endian")

_HASHED_SPAN = 1 << 16  # a span's arrays stay in a core's cache
_MOST_THREADS = 16
_OF_SOURCE, _OF_TARGET = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_OF_AN_EDGE = np.uint64(0x165667B19E3779F9)  # or an edge 0 → 0 would count as none
_NO_DATA: dict[str, np.ndarray] = {}  # never written to


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Adjacency:
    """Compressed sparse rows of a graph, in one direction.

    Attributes:
        offsets: row r's entries are `offsets[r]:offsets[r+1]`; int64 `[R+1]` on the host, uint32 `[R+1, 2]` inside JAX.
        neighbours: the vertex at the other end of each entry, int32 `[E]`.
        edges: the slot of each entry, int32 `[E]`; None where entry k is slot k (incoming rows), and where edges are
            too many for int32 ids (outgoing rows; see `CompressedGraph.edge_ids_fit`). Of a part of a graph the number
            of the edge in that part (`dorylax.graph.shard`).
    """

    offsets: Any
    neighbours: Any
    edges: Any = None

    @property
    def num_rows(self) -> Size:
        """Number of rows R."""
        return self.offsets.shape[0] - 1


class CompressedGraph:
    """The interface of graphs to operators, layers and servers; see the module's text for the contract.

    The constructor does not validate. A subclass adds methods and overrides none.

    Args:
        offsets: In-edge row offsets, int64 `[V+1]`.
        sources: Source vertex of each in-edge, ascending inside a row, int32 `[E]`.
        outgoing: The same edges by source; made on first use if not given.
        symmetric: Whether u → v comes with v → u (with the same multiplicity); both directions then share arrays.
        self_loops: Whether no vertex, some vertices or all vertices have an edge to themselves.
        vertex_ids: The user's id of the vertex in row r, int32 `[V]`; None where row r is vertex r (see `reorder`).
        placed: Places of the edges in per-edge arrays; see `dorylax.graph.rows.EdgeOrder`.
        edge_ids: See the property.
        num_edge_ids: N, where ids 0 … N-1 were given out, also to edges that are gone; by default just enough.
        edge_data: See the property; None where it is not known (inside JAX).
        without_edge_ids: Whether edges have no ids although they might; see `Graph.without_edge_ids`.
    """

    graph_of: Any = None
    """The graph of each vertex, int32 `[V]`, where many lie side by side (`with_graphs`); None where all are one graph."""
    num_graphs: int | None = None

    def __init__(
        self,
        offsets: Any,
        sources: Any,
        *,
        outgoing: Adjacency | None = None,
        symmetric: bool = False,
        self_loops: SelfLoops = "none",
        vertex_ids: Any = None,
        placed: EdgeOrder = "target",
        edge_ids: Any = None,
        num_edge_ids: int | None = None,
        edge_data: Mapping[str, np.ndarray] | None = _NO_DATA,
        without_edge_ids: bool = False,
    ) -> None:
        self.incoming = Adjacency(offsets, sources)
        self.symmetric = symmetric
        self.self_loops: SelfLoops = self_loops
        self.vertex_ids = vertex_ids
        self.placed = placed
        self._edge_ids = edge_ids
        self._num_edge_ids = num_edge_ids
        self._edge_data = edge_data
        self._without_edge_ids = without_edge_ids
        if outgoing is not None:
            self.__dict__["outgoing"] = outgoing

    def with_graphs(self: AnyGraph, graph_of: Any, num_graphs: int | None) -> AnyGraph:
        """The same graph as `num_graphs` graphs side by side, without edges between them; graph g may have no vertex."""
        graph = copy.copy(self)
        graph.graph_of, graph.num_graphs = graph_of, num_graphs
        return graph

    @cached_property
    def outgoing(self) -> Adjacency:
        """The edges by source; computed (one counting sort, O(V + E)) and kept on first use."""
        rows = self.incoming.offsets, self.incoming.neighbours
        if not self.symmetric:
            return Adjacency(*transpose(*rows, self.num_vertices, with_positions=self.edge_ids_fit))
        return Adjacency(*rows, transposed_positions(*rows) if self.edge_ids_fit else None)

    @property
    def edge_ids(self) -> Any:
        """The id of each edge in order of per-edge arrays, int32 `[E]`, ascending; None where these are 0 … E-1.

        Values of all edges that the user gave, `[E_given, …]`, are those of this graph's edges as `values[graph.edge_ids]`,
        and after `symmetrise` as `values[graph.edge_ids % E_given]`: a reverse edge has the id E_given + that of its twin.

        Raises:
            GraphError: edges have no ids (`edge_ids_fit`).
        """
        self.require_edge_ids()
        return self._edge_ids

    @property
    def num_edge_ids(self) -> int:
        """N: ids 0 … N-1 were given out, also to edges that are gone; new edges get ids from N on. On the host only."""
        if self._num_edge_ids is not None:
            return self._num_edge_ids
        return int(self.num_edges if self._edge_ids is None or not self.num_edges else self._edge_ids[-1] + 1)

    @property
    def edge_data(self) -> Mapping[str, np.ndarray]:
        """Values of the edges under their names, NumPy `[E, …]` in order of edge ids; transformations keep them.

        Raises:
            GraphError: inside JAX, where there are none.
        """
        if not self.knows_edge_data:
            raise GraphError(
                "graph.edge_data is there on the host only, and this graph comes from inside JAX: give the model what it "
                "reads as an input, model(graph, x, weight)"
            )
        return MappingProxyType(self._edge_data or {})

    @property
    def knows_edge_data(self) -> bool:
        """Whether `edge_data` may be read: not inside JAX, nor once a graph went through it."""
        return self._edge_data is not None

    @cached_property
    def edge_order(self) -> Any:
        """The place in per-edge arrays of the edge in each slot, int32 `[E]`; None where slot k is place k.

        Computed (two counting sorts at most, O(V + E)) and kept on first use.

        Raises:
            GraphError: edges have no ids (`edge_ids_fit`).
        """
        self.require_edge_ids()
        if isinstance(self.placed, BySlot):
            return self.placed.places
        if self.by_source:
            positions = self.outgoing.edges
            return positions if self.symmetric else inverse_permutation(np.asarray(positions))
        if self.vertex_ids is None:
            return None if isinstance(self.placed, str) else self.placed
        return places_of_slots(self.placed, *self.host_rows(), self.vertex_ids)

    @property
    def by_source(self) -> bool:
        """Whether per-edge arrays are in order of the outgoing rows: `outgoing.edges[k]` is then the slot of place k."""
        return isinstance(self.placed, str) and self.placed == "source" and self.vertex_ids is None

    @property
    def num_vertices(self) -> Size:
        """V, the number of vertices."""
        return self.incoming.num_rows

    @property
    def num_edges(self) -> Size:
        """E, the number of directed edges; an undirected edge counts twice."""
        return self.incoming.neighbours.shape[0]

    @property
    def edge_ids_fit(self) -> bool:
        """Whether edges have int32 ids, so that per-edge arrays, edge weights and attention are possible.

        False past 2³¹ - 1 edges and after `Graph.without_edge_ids`: `outgoing.edges` is then None, and is not to be read as
        "entry k is slot k".
        """
        if isinstance(self.incoming.neighbours, np.ndarray):
            return edge_ids_fit(self.num_edge_ids) and not self._without_edge_ids
        return self.outgoing.edges is not None  # inside JAX the number of edges may be symbolic

    def require_edge_ids(self) -> None:
        """Raises a `GraphError` where edges have no ids."""
        if self.edge_ids_fit:
            return
        if isinstance(self.num_edges, int) and edge_ids_fit(self.num_edges):
            raise GraphError(
                "the edges of this graph have no ids: it was made without (Graph.without_edge_ids, edge_ids=False) or its "
                "ids do not fit int32; use the graph as it was before"
            )
        raise GraphError(
            f"the graph has {self.num_edges} edges: operators with weights, attention or values per edge take at most "
            "2147483647, because JAX counts in int32; gather without weights has no limit"
        )

    def host_rows(self) -> tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " E"]]:
        """Offsets and sources of the incoming rows as NumPy arrays, wherever they are."""
        return as_int64(self.incoming.offsets), np.asarray(self.incoming.neighbours)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[bool, SelfLoops, bool, int | None]]:
        """Leaves: arrays as JAX may see them. Static: properties that may change the traced operations."""
        out = self.outgoing
        reverse = (None, None) if self.symmetric else (as_words(out.offsets), out.neighbours)
        # Where ids do not fit, JAX would narrow int64 ids to wrong ones without a word.
        fit = self.edge_ids_fit
        by_source = fit and self.by_source
        edges, edge_ids = (out.edges, self.edge_ids) if fit else (None, None)
        order = None if by_source or not fit else self.edge_order
        leaves = (as_words(self.incoming.offsets), self.incoming.neighbours, *reverse, edges)
        static = (self.symmetric, self.self_loops, by_source, self.num_graphs)
        return (*leaves, self.vertex_ids, order, edge_ids, self.graph_of), static

    @classmethod
    def tree_unflatten(
        cls: type[AnyGraph], static: tuple[bool, SelfLoops, bool, int | None], leaves: tuple[Any, ...]
    ) -> AnyGraph:
        """Inverse of `tree_flatten`, but for `edge_data`; takes any leaves, as JAX requires."""
        offsets, sources, out_offsets, targets, out_edges, vertex_ids, edge_order, edge_ids, graph_of = leaves
        symmetric, self_loops, by_source, num_graphs = static
        outgoing = Adjacency(offsets, sources, out_edges) if symmetric else Adjacency(out_offsets, targets, out_edges)
        return cls(
            offsets,
            sources,
            outgoing=outgoing,
            symmetric=symmetric,
            self_loops=self_loops,
            vertex_ids=vertex_ids,
            placed="source" if by_source else BySlot(edge_order),
            edge_ids=edge_ids,
            edge_data=None,
            without_edge_ids=out_edges is None,
        ).with_graphs(graph_of, num_graphs)

    def __repr__(self) -> str:
        kind = "symmetric" if self.symmetric else "directed"
        size = f"{self.num_vertices} vertices, {self.num_edges} edges"
        return f"{type(self).__name__}({size}, {kind}, self-loops: {self.self_loops})"


AnyGraph = TypeVar("AnyGraph", bound=CompressedGraph)
"""The class of a graph that is made or changed."""


def in_degrees(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """Number of in-edges of each vertex, int64 `[V]`; duplicates and loops count."""
    return np.diff(as_int64(graph.incoming.offsets))


def out_degrees(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """Number of out-edges of each vertex, int64 `[V]`; duplicates and loops count. Does not build `graph.outgoing`."""
    if graph.symmetric:
        return in_degrees(graph)
    return count_values(np.asarray(graph.incoming.neighbours), graph.num_vertices)


def assemble(
    kind: type[AnyGraph],
    offsets: Int64[np.ndarray, " V1"],
    sources: Int32[np.ndarray, " E"],
    *,
    symmetric: bool | None = None,
    self_loops: SelfLoops | None = None,
    **edges: Any,
) -> AnyGraph:
    """Make a graph of in-edges whose sources ascend inside a row, in O(V + E). `edges` are options of `CompressedGraph`.

    Symmetry and self-loops are detected, in a pass over the edges each, unless a value is given, which is trusted.
    """
    if symmetric is None:
        symmetric = np.array_equal(
            np.diff(offsets), count_values(sources, len(offsets) - 1)
        )  # nearly never if directed
        if symmetric:
            forward, reverse = edge_fingerprint(offsets, sources)
            symmetric = forward == reverse
    if self_loops is None:
        looped = rows_with_loops(offsets, sources)
        self_loops = "none" if not looped.any() else "all" if looped.all() else "some"
    return kind(offsets, sources, symmetric=symmetric, self_loops=self_loops, **edges)


def numbered_by_source(graph: AnyGraph, vertex_ids: np.ndarray | None = None) -> AnyGraph:
    """The same rows with edge ids 0 … E-1 by (source, target), as they are once it was saved and read again."""
    return type(graph)(
        graph.incoming.offsets,
        graph.incoming.neighbours,
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        vertex_ids=vertex_ids,
        placed="source",
    )


def edge_fingerprint(offsets: Int64[np.ndarray, " V1"], sources: Int32[np.ndarray, " E"]) -> tuple[int, int]:
    """Hashes of the edges and of the reversed edges, 64 bits each: equal if every edge comes with its reverse."""
    return _over_spans(lambda start, stop: (sources[start:stop], rows_between(offsets, start, stop)), len(sources))


def pair_fingerprint(sources: Int32[np.ndarray, " E"], targets: Int32[np.ndarray, " E"]) -> tuple[int, int]:
    """The same of edges that are in any order; those of parts of them add up, modulo 2⁶⁴."""
    return _over_spans(lambda start, stop: (sources[start:stop], targets[start:stop]), len(sources))


def _over_spans(ends: Callable[[int, int], tuple[np.ndarray, np.ndarray]], num_edges: int) -> tuple[int, int]:
    def of_span(span: tuple[int, int]) -> tuple[int, int]:
        source, target = (one.astype(np.uint64) for one in ends(*span))
        forward = _mixed(source * _OF_SOURCE + target * _OF_TARGET + _OF_AN_EDGE)
        reverse = _mixed(target * _OF_SOURCE + source * _OF_TARGET + _OF_AN_EDGE)
        return int(forward.sum(dtype=np.uint64)), int(reverse.sum(dtype=np.uint64))

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS)) as threads:
        sums = list(threads.map(of_span, spans(num_edges, _HASHED_SPAN)))
    mask = (1 << 64) - 1
    return sum(forward for forward, _ in sums) & mask, sum(reverse for _, reverse in sums) & mask


def _mixed(words: UInt64[np.ndarray, " N"]) -> UInt64[np.ndarray, " N"]:
    """SplitMix64's finaliser (G. Steele, D. Lea and C. Flood, OOPSLA 2014), in place."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def as_words(offsets: Any) -> Any:
    """Offsets as JAX may carry them: int64 `[R+1]` on the host → uint32 `[R+1, 2]`, low word first, without a copy."""
    if isinstance(offsets, np.ndarray) and offsets.dtype == np.int64:
        return np.ascontiguousarray(offsets).view(np.uint32).reshape(-1, 2)
    return offsets


def as_int64(offsets: Any) -> np.ndarray:
    """Inverse of `as_words`, on the host: concrete offsets in either form → int64 `[R+1]`."""
    array = np.asarray(offsets)
    return array if array.dtype == np.int64 else np.ascontiguousarray(array).view(np.int64).reshape(-1)
