"""`Graph`: the data contract of `dorylax.graph.compressed` with every way to make, change and save one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, final

import jax
import numpy.typing as npt

from dorylax.graph import build, from_libraries, graph_arrays, reorder, transform
from dorylax.graph.compressed import CompressedGraph, SelfLoops
from dorylax.graph.stored import open_arrays
from dorylax.graph.transform import Coalesce
from dorylax.graph.validate import as_integers


@final
@jax.tree_util.register_pytree_node_class
class Graph(CompressedGraph):
    """Directed multigraph in compressed sparse rows; vertices are 0 … V-1 everywhere.

    Make one with `Graph.from_coo` or another `from_…`, which validate; the constructor does not. Duplicate edges are
    kept without `coalesce`.
    """

    @classmethod
    def from_coo(
        cls,
        sources: npt.ArrayLike,
        targets: npt.ArrayLike,
        num_vertices: int | None = None,
        *,
        edge_data: Mapping[str, Any] | None = None,
        coalesce: bool | Coalesce = False,
        edge_ids: bool = True,
        finite: bool = True,
    ) -> Graph:
        """A graph of the edges `sources[k]` → `targets[k]`, in O(V + E); k is the id of that edge.

        Args:
            sources: Integers `[E]`.
            targets: Integers `[E]`.
            num_vertices: V; None takes one more than the largest id.
            edge_data: Values of the edges, `[E, …]`, under their names and in the same order; see the property
                `edge_data`.
            coalesce: Keep one of equal edges: "first", the first with its values, or "sum", with the sum of all their
                values. False keeps all.
            edge_ids: False if no values per edge will ever come: no weights, no attention, no dropout of edges. It
                saves up to 4 bytes an edge; operators that would need ids refuse (`without_edge_ids`).
            finite: Whether to refuse NaN and infinity in `edge_data`.

        Returns:
            The graph. Values that come later are in the order of the arguments; after `coalesce` pass
                `values[graph.edge_ids]`.

        Raises:
            GraphError: Lengths differ, an id is negative or ≥ num_vertices, values are not one per edge or not finite,
                or a sum exceeds its dtype.
        """
        return build.from_pairs(
            cls,
            as_integers("sources", sources),
            as_integers("targets", targets),
            ("sources", "targets"),
            num_vertices,
            edge_data=edge_data,
            coalesce=coalesce,
            edge_ids=edge_ids,
            finite=finite,
        )

    @classmethod
    def from_csr(
        cls,
        offsets: npt.ArrayLike,
        sources: npt.ArrayLike,
        *,
        edge_data: Mapping[str, Any] | None = None,
        symmetric: bool | None = None,
        self_loops: SelfLoops | None = None,
        edge_ids: bool = True,
    ) -> Graph:
        """A graph of compressed rows by destination: row v, `sources[offsets[v]:offsets[v+1]]`, lists v's in-neighbours.

        Arrays of the right type (int64 and int32) whose rows are sorted are used as they are, memory-mapped ones
        included, and never written to. Otherwise the graph gets a sorted copy. An edge's id is its place in `sources`.

        Args:
            offsets: Integers `[V+1]`.
            sources: Integers `[E]`.
            edge_data: Values of the edges, `[E, …]`, in order of `sources`.
            symmetric: Whether u → v always comes with v → u. None finds out; a value is trusted, unchecked.
            self_loops: "none", "some" or "all" vertices have an edge to themselves. None finds out; a value is trusted.
            edge_ids: As in `from_coo`.

        Raises:
            GraphError: Offsets do not start at 0, decrease, or do not end at E; an id is negative or ≥ V.
        """
        known = {"symmetric": symmetric, "self_loops": self_loops}
        return build.from_incoming(cls, offsets, sources, edge_data=edge_data, edge_ids=edge_ids, **known)

    @classmethod
    def from_scipy(cls, adjacency: Any, *, weight: str | None = "weight", edge_ids: bool = True) -> Graph:
        """A graph of a square SciPy sparse array or matrix: each stored entry `(u, v)` is an edge u → v.

        A stored zero is an edge, and duplicates are several edges; `eliminate_zeros()` and `sum_duplicates()` change
        that. An edge's id is the place of its entry in `.data`; of layouts without such an array (lil, dok, dia, bsr)
        in that of `.tocoo()`.

        Args:
            adjacency: `[V, V]`.
            weight: Name of the values in `edge_data`; None leaves them out.
            edge_ids: As in `from_coo`; False leaves the values out, which `weight=None` must say too.

        Raises:
            GraphError: The array is not square, its arrays are inconsistent, or its values are no real numbers.
        """
        return from_libraries.scipy_sparse(cls, adjacency, weight, edge_ids=edge_ids)

    @classmethod
    def from_networkx(
        cls, graph: Any, nodes: Sequence[Hashable] | None = None, *, ignore: Collection[str] = ()
    ) -> Graph:
        """A graph of a networkx graph; an undirected edge becomes two directed ones of the same values, a loop one.

        The edges' attributes become `edge_data`. Edge k of `graph.edges` has the id k, and the other direction of an
        undirected one the id E + k, as in `symmetrise`. Keys of a multigraph are dropped.

        Args:
            graph: `networkx.Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`.
            nodes: Vertex i is `nodes[i]`. None: vertex i is node i if the nodes are the integers 0 … V-1, else
                `list(graph)[i]`.
            ignore: Names of attributes of edges or nodes to skip.

        Raises:
            GraphError: `nodes` does not list every node exactly once; an attribute is missing on some edges or is no
                number; nodes have attributes that are not ignored.
        """
        return from_libraries.graph_alone(
            from_libraries.networkx(cls, graph, nodes, ignore=ignore), ignore, "node attribute"
        )

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        num_vertices: int | None = None,
        *,
        edge_attr: Any = None,
        edge_weight: Any = None,
        coalesce: bool | Coalesce = False,
        edge_ids: bool = True,
    ) -> Graph:
        """A graph of an `edge_index` of PyTorch Geometric: row 0 holds sources, row 1 targets; column k is edge k.

        Args:
            edge_index: Integers `[2, E]`, a NumPy array or a torch tensor on any device.
            num_vertices: V (PyG's `num_nodes`); None takes one more than the largest id.
            edge_attr: Features of the edges, `[E, D]` or `[E]`, which become `edge_data["edge_attr"]`.
            edge_weight: `[E]`, which become `edge_data["edge_weight"]`.
            coalesce: As in `from_coo`.
            edge_ids: As in `from_coo`.

        Raises:
            GraphError: Another shape, an id that is negative or ≥ num_vertices, or values that are not one per edge.
        """
        named = {"edge_attr": edge_attr, "edge_weight": edge_weight}
        given = {name: values for name, values in named.items() if values is not None}
        options: dict[str, Any] = {"edge_data": given, "coalesce": coalesce, "edge_ids": edge_ids}
        return from_libraries.edge_index(cls, edge_index, num_vertices, **options)

    @classmethod
    def from_pyg(cls, data: Any, *, ignore: Collection[str] = ()) -> Graph:
        """A graph of a homogeneous `torch_geometric.data.Data`; values per edge become `edge_data`.

        Args:
            data: Data with an `edge_index`.
            ignore: Names to skip: tensors per node (`Dataset.from_pyg` takes those), of the whole graph, or per edge.

        Raises:
            GraphError: There is no `edge_index`, a value per edge is no real number, or another value is not ignored.
        """
        return from_libraries.graph_alone(from_libraries.pyg(cls, data, ignore=ignore), ignore, "data")

    @classmethod
    def from_dgl(cls, graph: Any, *, ignore: Collection[str] = ()) -> Graph:
        """A graph of a homogeneous `dgl.DGLGraph`; `edata` become `edge_data`, and an edge's id is DGL's.

        `ignore` names `ndata` (a `Dataset`'s) and `edata` to skip. Raises a GraphError for several types of nodes or
        edges, `edata` that are no real numbers, or `ndata` that are not ignored.
        """
        return from_libraries.graph_alone(from_libraries.dgl(cls, graph, ignore=ignore), ignore, "ndata")

    @classmethod
    def from_dataframe(
        cls,
        edges: Any,
        source: Hashable | None = None,
        target: Hashable | None = None,
        num_vertices: int | None = None,
        *,
        ignore: Collection[Hashable] = (),
        coalesce: bool | Coalesce = False,
    ) -> Graph:
        """A graph of a `pandas.DataFrame`: row k is edge k. Its index is ignored, other columns become `edge_data`.

        Args:
            edges: The table, E rows.
            source: Column of the sources, integers; None takes `source`, `src`, `from` or `u`.
            target: Column of the targets, integers; None takes `target`, `dst`, `to` or `v`.
            num_vertices: V; None takes one more than the largest id.
            ignore: Columns to skip.
            coalesce: As in `from_coo`.

        Raises:
            GraphError: There is no such column, vertices are not integers, or other columns hold no real numbers or
                lack some.
        """
        return from_libraries.dataframe(cls, edges, source, target, num_vertices, ignore=ignore, coalesce=coalesce)

    @classmethod
    def from_folder(cls, path: str | PathLike[str], *, verify: bool = True) -> Graph:
        """Read the graph in a folder that `Graph.save`, `Dataset.save` or a command wrote, or in an old `.npz` archive.

        Args:
            path: Path of the folder (`dorylax.graph.array_names` describes its arrays).
            verify: Whether to compare arrays with their checksums.

        Raises:
            FileNotFoundError: There is no such folder or file.
            GraphError: It is something else, is damaged, lacks `indptr` or `indices`, or they are inconsistent.
        """
        with open_arrays(path, verify=verify) as stored:
            return graph_arrays.from_stored(cls, stored)

    from_npz = from_folder  # the name for old archives, for one release
    save = graph_arrays.save
    coalesce = transform.coalesce
    with_self_loops = transform.with_self_loops
    without_self_loops = transform.without_self_loops
    symmetrise = transform.symmetrise
    without_edge_ids = transform.without_edge_ids
    reorder = reorder.reorder
