"""Graphs with other edges on the same vertices: coalesced, self-loops added or dropped, directions made symmetric.

Each function returns a new graph, or the same one where there is nothing to change. Edges that stay keep their ids and
values; new edges get ids after all that were given out (`Graph.num_edge_ids`, N), in an order that memory order does
not change. Layers do not need explicit self-loops: operators treat a missing loop as a term of their formula.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

from dorylax.graph.compressed import Adjacency, AnyGraph, CompressedGraph, assemble
from dorylax.graph.reorder import reorder, user_order
from dorylax.graph.rows import (
    MAX_EDGE_IDS,
    BySlot,
    all_rows,
    compress,
    edge_ids_fit,
    first_of_equals,
    offsets_without,
    positions_where,
    ranked,
    rows_between,
    rows_with_loops,
)
from dorylax.graph.validate import GraphError, check_finite

Coalesce = Literal["first", "sum"]
"""What becomes of the values of equal edges: those of the first are kept, or all are added up."""
EdgeData = dict[str, np.ndarray]
_Arguments = ParamSpec("_Arguments")


def _in_users_order(
    change: Callable[Concatenate[AnyGraph, _Arguments], AnyGraph],
) -> Callable[Concatenate[AnyGraph, _Arguments], AnyGraph]:

    @functools.wraps(change)
    def changed(graph: AnyGraph, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> AnyGraph:
        order = user_order(graph)
        if order is None:
            return change(graph, *args, **options)
        given = reorder(graph, order)
        result = change(given, *args, **options)
        return graph if result is given else reorder(result, np.asarray(graph.vertex_ids))

    return changed


@_in_users_order
def coalesce(graph: AnyGraph, values: Coalesce = "first") -> AnyGraph:
    """The graph with one edge for all that are equal, which keeps the id of the first.

    Args:
        graph: the graph.
        values: Whether `edge_data` keeps the values of the "first", or the "sum" of all.

    Raises:
        GraphError: a sum of nothing or of truth values, or one that exceeds the dtype of the values.
    """
    data = _data(graph)
    if values == "sum":
        check_sums({name: array.dtype for name, array in data.items()})
    offsets, sources = graph.host_rows()
    keep = first_of_equals(offsets, sources)
    if keep.all():
        return graph
    if values == "sum":
        data = {name: _sums_of_equals(graph, name, array, keep) for name, array in data.items()}
    return part(graph, keep, data, symmetric=graph.symmetric or None, self_loops=graph.self_loops)


@_in_users_order
def with_self_loops(graph: AnyGraph, loop_data: Mapping[str, Any] | None = None) -> AnyGraph:
    """The graph with an edge v → v for each vertex v that has none; existing loops stay as they are.

    Args:
        graph: the graph.
        loop_data: Values of the new edges for `edge_data`: a value for all, or one row for each vertex, `[V, …]`, in
            the user's order. The new loop of v gets the id N + v.

    Raises:
        GraphError: edges have values and `loop_data` does not say what loops get, or says more.
    """
    data = _data(graph)
    given = dict(loop_data or {})
    if given.keys() != data.keys():
        absent, unknown = [name for name in data if name not in given], [name for name in given if name not in data]
        fault = (
            f"says nothing of {', '.join(absent)}" if absent else f"has {', '.join(unknown)}, which the edges have not"
        )
        example = ", ".join(f'"{name}": …' for name in data)
        raise GraphError(f"loop_data {fault}: say what self-loops get, with_self_loops({{{example}}})")
    if graph.self_loops == "all" or graph.num_vertices == 0:
        return graph
    num_vertices = graph.num_vertices
    offsets, sources = graph.host_rows()
    lacking = np.flatnonzero(~rows_with_loops(offsets, sources))
    below = np.diff(np.searchsorted(positions_where(np.less, offsets, sources), offsets))
    slots = offsets[lacking] + below[lacking]  # after the sources smaller than v, so that rows stay sorted
    rows = offsets + np.searchsorted(lacking, np.arange(num_vertices + 1)), np.insert(sources, slots, lacking)
    num_ids = graph.num_edge_ids + num_vertices
    with_ids = _keeps_ids(graph, num_ids, data)
    places = np.insert(_order(graph), slots, graph.num_edges + lacking) if with_ids else None
    data = {name: _with_loops(name, array, given[name], num_vertices) for name, array in data.items()}
    known: dict[str, Any] = {"symmetric": graph.symmetric, "self_loops": "all"}
    return _with_edges(graph, rows, places, num_ids, data, new_ids=np.arange(num_vertices), **known)


@_in_users_order
def without_self_loops(graph: AnyGraph) -> AnyGraph:
    """The graph without the edges v → v, and without their values."""
    if graph.self_loops == "none":
        return graph
    keep = np.ones(graph.num_edges, bool)
    keep[positions_where(np.equal, *graph.host_rows())] = False
    return part(graph, keep, _data(graph), symmetric=graph.symmetric, self_loops="none")


@_in_users_order
def symmetrise(graph: AnyGraph) -> AnyGraph:
    """The undirected graph: u → v and v → u, once each, wherever `graph` has either.

    Of equal edges the first stays, with its values. The reverse of an edge that had none gets its twin's values, and as its
    id N + that of its twin: after `Graph.from_coo` of E edges, E + the twin's place. Where u → v and v → u are both there,
    each keeps its own.
    """
    offsets, sources = graph.host_rows()
    if graph.symmetric:
        return coalesce(graph)
    num_edges, num_ids, data = len(sources), 2 * graph.num_edge_ids, _data(graph)
    with_ids = _keeps_ids(graph, num_ids, data)
    targets = all_rows(offsets)
    both = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    offsets, sources, origin = compress(*both, graph.num_vertices, with_positions=with_ids)
    # The sort is stable: edges before reverse edges, lower ids before higher ones.
    keep = first_of_equals(offsets, sources)
    rows = offsets_without(offsets, np.flatnonzero(~keep)), sources[keep]
    known: dict[str, Any] = {"symmetric": True, "self_loops": graph.self_loops}
    if not with_ids:
        return _with_edges(graph, rows, None, num_ids, data, **known)
    origin = origin[keep]
    places = _order(graph)[origin % num_edges] + (origin >= num_edges) * np.int64(num_edges)
    data = {name: np.concatenate([array, array]) for name, array in data.items()}
    return _with_edges(graph, rows, places, num_ids, data, new_ids=_all_ids(graph), **known)


def without_edge_ids(graph: AnyGraph) -> AnyGraph:
    """The same graph, whose edges have no ids and no values: 4 to 12 bytes an edge less on the device.

    For models without weights, attention or values per edge; operators that would need ids raise a `GraphError`.
    """
    if not graph.edge_ids_fit:
        return graph
    out = graph.__dict__.get("outgoing")
    return type(graph)(
        graph.incoming.offsets,
        graph.incoming.neighbours,
        outgoing=None if out is None else Adjacency(out.offsets, out.neighbours),
        symmetric=graph.symmetric,
        self_loops=graph.self_loops,
        vertex_ids=graph.vertex_ids,
        without_edge_ids=True,
    ).with_graphs(graph.graph_of, graph.num_graphs)


def closed_part(graph: AnyGraph, keep: Bool[np.ndarray, " V"]) -> tuple[AnyGraph, Int64[np.ndarray, " E2"]]:
    """Some vertices, which no edge joins with the others; they and their edges keep their ids.

    Returns the graph, and the places of its edges among the per-edge arrays of the whole; none if edges have no ids.
    """
    offsets, sources = graph.host_rows()
    kept = keep[sources]
    numbers = np.cumsum(keep, dtype=np.int32) - np.int32(1)
    known: dict[str, Any] = {"without_edge_ids": True}
    places = np.zeros(0, np.int64)
    if graph.edge_ids_fit:
        order = _order(graph)
        places, ranks = ranked(order[kept], len(order))
        known = {"placed": BySlot(ranks), "edge_ids": _all_ids(graph)[places].astype(np.int32)}
    ids = np.arange(graph.num_vertices, dtype=np.int32) if graph.vertex_ids is None else np.asarray(graph.vertex_ids)
    part = assemble(
        type(graph),
        np.append(0, np.cumsum(np.diff(offsets)[keep])),
        numbers[sources[kept]],
        symmetric=graph.symmetric,
        self_loops=None if graph.self_loops == "some" else graph.self_loops,
        vertex_ids=ids[keep],
        **known,
    )
    return part, places


def require_ids_for(edge_data: Mapping[str, Any], num_edge_ids: int) -> None:
    """Raises a `GraphError` where there are values per edge and ids 0 … `num_edge_ids` - 1 do not fit int32."""
    if edge_data and not edge_ids_fit(num_edge_ids):
        raise GraphError(
            f"edge_data {', '.join(edge_data)}: ids of {num_edge_ids} edges do not fit int32, in which JAX counts: values "
            f"per edge need at most {MAX_EDGE_IDS}"
        )


def check_sums(dtypes: Mapping[str, np.dtype[Any]]) -> None:
    """Raises a `GraphError` where values of equal edges cannot be added: there are none, or they are truth values."""
    if not dtypes:
        raise GraphError(
            'coalesce="sum" adds the values of equal edges, but these edges have none: give edge_data={"weight": …}, '
            'or say coalesce="first"'
        )
    for name, dtype in dtypes.items():
        if dtype.kind == "b":
            raise GraphError(
                f'edge_data[{name!r}] is bool, which coalesce="sum" cannot add: convert it, or say "first"'
            )


def sums_of_runs(values: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, int | None]:
    """Sums `[R, …]` of consecutive values in their dtype, and the first run whose sum exceeds the dtype, or None.

    Runs begin at the ascending positions `starts`. Values of type float16 are added in float32.
    """
    floating = values.dtype.kind == "f"
    with np.errstate(over="ignore", invalid="ignore"):
        held = np.result_type(values.dtype, np.float32) if floating else values.dtype
        sums = np.add.reduceat(values, starts, axis=0, dtype=held).astype(values.dtype, copy=False)
        if floating:
            wrong = ~np.isfinite(sums) & np.logical_and.reduceat(np.isfinite(values), starts, axis=0)
        else:  # a sum that wraps is off by a multiple of 2^bits
            exact = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
            wrong = np.abs(exact - sums) > 2.0 ** (8 * values.dtype.itemsize - 1)
    return sums, int(np.argwhere(wrong)[0][0]) if wrong.any() else None


def wider(dtype: np.dtype[Any]) -> str | None:
    """Return the name of a type for sums that exceed a dtype; None for float64, which is the widest."""
    if dtype.kind == "f":
        return {2: "float32", 4: "float64"}.get(dtype.itemsize)
    return "int64" if dtype.itemsize < 8 else "float64"


def _data(graph: CompressedGraph) -> EdgeData:
    """The edges' values; none for a graph that came through JAX."""
    return dict(graph.edge_data) if graph.knows_edge_data else {}


def _keeps_ids(graph: CompressedGraph, num_ids: int, data: EdgeData) -> bool:
    """Whether the changed graph, of ids 0 … `num_ids` - 1, has any; an error if it has values and can have none."""
    require_ids_for(data, num_ids)
    return graph.edge_ids_fit and edge_ids_fit(num_ids)


def _order(graph: CompressedGraph) -> Integer[np.ndarray, " E"]:
    order = graph.edge_order
    return np.arange(graph.num_edges, dtype=np.int32) if order is None else np.asarray(order)


def _all_ids(graph: CompressedGraph) -> Int64[np.ndarray, " E"]:
    ids = graph.edge_ids
    return np.arange(graph.num_edges) if ids is None else np.asarray(ids, np.int64)


def part(graph: AnyGraph, keep: Bool[np.ndarray, " E"], data: EdgeData, **known: Any) -> AnyGraph:
    """The graph, in the user's order, of the edges whose slots are kept, which keep their ids.

    `data` are values of all edges, in order of ids; `known` are properties that `assemble` need not detect.
    """
    offsets, sources = graph.host_rows()
    rows = offsets_without(offsets, np.flatnonzero(~keep)), sources[keep]
    if not graph.edge_ids_fit:
        return _with_edges(graph, rows, None, graph.num_edge_ids, data, **known)
    order = graph.edge_order
    if order is None:
        known["placed"] = "target"  # a part of a sorted list is sorted
    elif isinstance(graph.placed, str):
        known["placed"] = graph.placed
    return _with_edges(graph, rows, _order(graph)[keep], graph.num_edge_ids, data, **known)


def _with_edges(
    graph: AnyGraph,
    rows: tuple[Int64[np.ndarray, " V1"], Int32[np.ndarray, " e"]],
    places: Integer[np.ndarray, " e"] | None,
    num_ids: int,
    data: EdgeData,
    *,
    new_ids: Int64[np.ndarray, " n"] | None = None,
    **known: Any,
) -> AnyGraph:
    """The graph, in the user's order and with E edges, with other edges on the same vertices, some of which it had.

    Args:
        graph: The graph.
        rows: Offsets and sources of the edges.
        places: For each of them the place it had, or E + the number of a new one; None: edges get no ids.
        num_ids: Number of ids given out then.
        data: Values of the edges that the graph had, then of all that may be new.
        new_ids: Ids of the edges that may be new, less N.
        **known: Properties that `assemble` need not detect.
    """
    if places is None:
        return assemble(type(graph), *rows, **known, without_edge_ids=True)
    chosen, ranks = ranked(places, int(places.max(initial=-1)) + 1)
    ids = _all_ids(graph)
    if new_ids is not None:
        ids = np.concatenate([ids, graph.num_edge_ids + new_ids])
    ids = ids[chosen]
    contiguous = len(ids) == 0 or ids[-1] == len(ids) - 1
    return assemble(
        type(graph),
        *rows,
        **{"placed": ranks} | known,
        edge_ids=None if contiguous else ids.astype(np.int32),
        num_edge_ids=num_ids,
        edge_data={name: array[chosen] for name, array in data.items()} if graph.knows_edge_data else None,
    )


def _sums_of_equals(graph: CompressedGraph, name: str, values: np.ndarray, first: Bool[np.ndarray, " E"]) -> np.ndarray:
    """Values with the sum over all equal edges at the first of each, in the same dtype; a GraphError if a sum exceeds it."""
    order, result = _order(graph), values.copy()
    firsts = np.flatnonzero(first)
    sums, wrong = sums_of_runs(values[order], firsts)
    if wrong is not None:
        slot = int(firsts[wrong])
        offsets, sources = graph.host_rows()
        dtype = wider(values.dtype)
        raise GraphError(
            f'coalesce="sum": the sum of edge_data[{name!r}] over the edges {sources[slot]} → '
            f"{rows_between(offsets, slot, slot + 1)[0]} exceeds {values.dtype}: "
            + ("scale the values" if dtype is None else f"convert the values to {dtype}")
        )
    result[order[firsts]] = sums
    return result


def _with_loops(name: str, values: np.ndarray, given: Any, num_vertices: int) -> np.ndarray:
    """Values of the edges, followed by those of a loop at each vertex in the same dtype, `[E + V, …]`."""
    array = np.asarray(given)
    row = values.shape[1:]
    if array.shape not in (row, (num_vertices, *row)) or not np.can_cast(array.dtype, values.dtype, "same_kind"):
        raise GraphError(
            f"loop_data[{name!r}] must be {values.dtype}, {list(row)} for all loops or {[num_vertices, *row]}, one row per "
            f"vertex; got {array.dtype} {list(array.shape)}"
        )
    check_finite(f"loop_data[{name!r}]", np.atleast_1d(array))
    return np.concatenate([values, np.broadcast_to(array, (num_vertices, *row)).astype(values.dtype)])
