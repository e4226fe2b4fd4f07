"""The graph: the data contract of the library.

A `Graph` is a directed multigraph on vertices 0 … V-1 in compressed sparse rows, twice: *incoming* (row v lists the
sources of v's in-edges; forward gathers read it) and *outgoing* (row u lists the targets of u's out-edges; backward
gathers read it). It says nothing about features or labels (see `dorylax.graph.dataset`), and it does not build itself
from other formats (see `dorylax.graph.build`).
Its methods that make graphs are names for functions of `build`, `transform` and `reorder`; their texts are there.

Edge order. The position of an edge in the incoming rows, sorted by (target, source), is its *edge id*; every per-edge
array `[E, …]` is in that order. `outgoing.edges` gives the edge id of each outgoing entry.

Two representations of one class. On the host the arrays are NumPy (memory-mapped ones included) and offsets are int64.
Inside JAX a graph is a pytree: without x64, JAX would silently narrow int64 to int32 and offsets past 2³¹ would be
wrong, so offsets travel as their little-endian 32-bit halves, uint32 `[V+1, 2]`, which is the same memory (no copy).
Edge ids do not: past 2³¹ - 1 edges there are none (`Graph.edge_ids_fit`), and only what never reads them applies.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Hashable, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, Literal, final, overload

import jax
import numpy as np
import numpy.typing as npt

from dorylax.graph.transpose import edge_ids_fit, transpose, transposed_positions
from dorylax.graph.validate import GraphError

SelfLoops = Literal["none", "some", "all"]
Size = Any
"""An int; while a model is traced for any size, a symbolic dimension of JAX."""

if sys.byteorder != "little":  # the uint32 view of int64 offsets below assumes it
    raise ImportError(f"dorylax needs a little-endian machine, this one is {sys.byteorder}-endian")


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Adjacency:
    """Compressed sparse rows of a graph, in one direction.

    Attributes:
        offsets: row r's entries are `offsets[r]:offsets[r+1]`; int64 `[R+1]` on the host, uint32 `[R+1, 2]` inside JAX.
        neighbours: the vertex at the other end of each entry, int32 `[E]`.
        edges: the edge id of each entry, int32 `[E]`; None where entry k is edge k (incoming rows), and where edges are
            too many for int32 ids (outgoing rows; see `Graph.edge_ids_fit`).
    """

    offsets: Any
    neighbours: Any
    edges: Any = None

    @property
    def num_rows(self) -> Size:
        """Number of rows R."""
        return int(self.offsets.shape[0]) - 1 if isinstance(self.offsets, np.ndarray) else self.offsets.shape[0] - 1


@final
@jax.tree_util.register_pytree_node_class
class Graph:
    """Directed multigraph in compressed sparse rows; see the module's text for the contract.

    Make one with `Graph.from_coo`, `from_csr`, `from_scipy`, `from_networkx`, `from_edge_index` or `from_npz`, which
    validate; the constructor trusts its arguments.

    Args:
        offsets: in-edge row offsets, int64 `[V+1]`.
        sources: source vertex of each in-edge, ascending inside a row, int32 `[E]`.
        outgoing: the same edges by source; made on first use when not given.
        symmetric: whether u → v comes with v → u (with the same multiplicity); both directions then share arrays.
        self_loops: whether no vertex, some vertices or all vertices have an edge to themselves.
        vertex_ids: the user's id of the vertex in row r, int32 `[V]`; None where row r is vertex r (see `reorder`).
        edge_ids: see the property; computed on first use when not given.
        without_edge_ids: whether edges have no ids although they might; see the method.
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
        without_edge_ids: bool = False,
    ) -> None:
        self.incoming = Adjacency(offsets, sources)
        self.symmetric = symmetric
        self.self_loops: SelfLoops = self_loops
        self.vertex_ids = vertex_ids
        self._without_edge_ids = without_edge_ids
        if outgoing is not None:
            self.__dict__["outgoing"] = outgoing
        if edge_ids is not None:
            self.__dict__["edge_ids"] = edge_ids

    @cached_property
    def outgoing(self) -> Adjacency:
        """The edges by source; computed (one counting sort, O(V + E)) and kept on first use."""
        rows = self.incoming.offsets, self.incoming.neighbours
        if not self.symmetric:
            return Adjacency(*transpose(*rows, self.num_vertices, with_positions=self.edge_ids_fit))
        return Adjacency(*rows, transposed_positions(*rows) if self.edge_ids_fit else None)

    @cached_property
    def edge_ids(self) -> Any:
        """The edge id, in the graph before any `reorder`, of each edge, int32 `[E]`; None where unchanged.

        Computed (two counting sorts, O(V + E)) and kept on first use.

        Raises:
            GraphError: edges have no ids (`edge_ids_fit`).
        """
        if self.vertex_ids is None:
            return None
        self.require_edge_ids()
        from dorylax.graph.reorder import user_edge_ids

        return user_edge_ids(as_int64(self.incoming.offsets), np.asarray(self.incoming.neighbours), self.vertex_ids)

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

        False past 2³¹ - 1 edges and after `without_edge_ids`: `outgoing.edges` is then None, and is not to be read as
        "entry k is edge k".
        """
        if isinstance(self.incoming.neighbours, np.ndarray):
            return edge_ids_fit(self.num_edges) and not self._without_edge_ids
        return self.outgoing.edges is not None  # inside JAX the number of edges may be symbolic

    def require_edge_ids(self) -> None:
        """Raises a `GraphError` where edges have no ids."""
        if self.edge_ids_fit:
            return
        if isinstance(self.num_edges, int) and edge_ids_fit(self.num_edges):
            raise GraphError(
                "the edges of this graph have no ids (Graph.without_edge_ids): use the graph as it was before"
            )
        raise GraphError(
            f"the graph has {self.num_edges} edges: operators with weights, attention or values per edge take at most "
            "2147483647, because JAX counts in int32; gather without weights has no limit"
        )

    @overload
    @staticmethod
    def from_coo(
        sources: npt.ArrayLike, targets: npt.ArrayLike, num_vertices: int | None = None, *, coalesce: bool = False
    ) -> Graph: ...
    @overload
    @staticmethod
    def from_coo(
        sources: npt.ArrayLike,
        targets: npt.ArrayLike,
        num_vertices: int | None = None,
        *,
        coalesce: bool = False,
        return_edge_order: Literal[True],
    ) -> tuple[Graph, np.ndarray]: ...
    @staticmethod
    def from_coo(*args: Any, **options: Any) -> Any:
        """Of edges `sources[k]` → `targets[k]`; see `dorylax.graph.build.from_coo`."""
        from dorylax.graph import build

        return build.from_coo(*args, **options)

    @staticmethod
    def from_csr(
        offsets: npt.ArrayLike,
        sources: npt.ArrayLike,
        *,
        symmetric: bool | None = None,
        self_loops: SelfLoops | None = None,
    ) -> Graph:
        """Of compressed rows by destination, used in place where sorted; see `dorylax.graph.build.from_csr`."""
        from dorylax.graph import build

        return build.from_csr(offsets, sources, symmetric=symmetric, self_loops=self_loops)

    @staticmethod
    def from_scipy(adjacency: Any) -> Graph:
        """Of a SciPy sparse array, entry `(u, v)` being u → v; see `dorylax.graph.build.from_scipy`."""
        from dorylax.graph import build

        return build.from_scipy(adjacency)

    @staticmethod
    def from_networkx(graph: Any, nodes: Sequence[Hashable] | None = None) -> Graph:
        """Of a networkx graph; see `dorylax.graph.build.from_networkx`."""
        from dorylax.graph import build

        return build.from_networkx(graph, nodes)

    @overload
    @staticmethod
    def from_edge_index(edge_index: Any, num_vertices: int | None = None, *, coalesce: bool = False) -> Graph: ...
    @overload
    @staticmethod
    def from_edge_index(
        edge_index: Any,
        num_vertices: int | None = None,
        *,
        coalesce: bool = False,
        return_edge_order: Literal[True],
    ) -> tuple[Graph, np.ndarray]: ...
    @staticmethod
    def from_edge_index(*args: Any, **options: Any) -> Any:
        """Of PyTorch Geometric's `edge_index` `[2, E]`; see `dorylax.graph.build.from_edge_index`."""
        from dorylax.graph import build

        return build.from_edge_index(*args, **options)

    @staticmethod
    def from_npz(path: str | PathLike[str]) -> Graph:
        """Of an archive in dorylax's npz layout; see `dorylax.graph.build.from_npz`."""
        from dorylax.graph import build

        return build.from_npz(path)

    def with_self_loops(self) -> Graph:
        """With an edge v → v added for each vertex that has none; see `dorylax.graph.transform`."""
        from dorylax.graph import transform

        return transform.with_self_loops(self)

    def without_self_loops(self) -> Graph:
        """Without the edges v → v; see `dorylax.graph.transform`."""
        from dorylax.graph import transform

        return transform.without_self_loops(self)

    def symmetrise(self) -> Graph:
        """With u → v and v → u, once each, wherever this graph has either; see `dorylax.graph.transform`."""
        from dorylax.graph import transform

        return transform.symmetrise(self)

    def without_edge_ids(self) -> Graph:
        """The same graph, whose edges have no ids: 4 to 12 bytes an edge less on the device.

        For models without weights, attention or values per edge; operators that would need ids raise a `GraphError`.
        """
        if not self.edge_ids_fit:
            return self
        out = self.__dict__.get("outgoing")
        return Graph(
            self.incoming.offsets,
            self.incoming.neighbours,
            outgoing=None if out is None else Adjacency(out.offsets, out.neighbours),
            symmetric=self.symmetric,
            self_loops=self.self_loops,
            vertex_ids=self.vertex_ids,
            without_edge_ids=True,
        )

    def reorder(self, order: npt.ArrayLike) -> Graph:
        """With row `order[i]` moved to row i; vertices and edges keep the user's ids; see `dorylax.graph.reorder`."""
        from dorylax.graph.reorder import reorder

        return reorder(self, order)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[bool, SelfLoops]]:
        """Leaves: arrays as JAX may see them. Static: what may change which operations are traced."""
        out = self.outgoing
        reverse = (None, None) if self.symmetric else (as_words(out.offsets), out.neighbours)
        # Where ids do not fit, JAX would narrow int64 ids to wrong ones without a word.
        edges, edge_ids = (out.edges, self.edge_ids) if self.edge_ids_fit else (None, None)
        leaves = (as_words(self.incoming.offsets), self.incoming.neighbours, *reverse, edges)
        return (*leaves, self.vertex_ids, edge_ids), (self.symmetric, self.self_loops)

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
            without_edge_ids=out_edges is None,
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
