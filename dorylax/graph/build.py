"""Build graphs from arrays of edges. Every function validates its arguments and raises `GraphError`.

An edge's id is its position in the given arrays, whatever their order, and `edge_data` are in that order. The
permutation from ids to rows is stored only if the rows are neither sorted by target nor by source. The constructors of
`Graph` describe the arguments. `kind` is the class of the graph, and `names` call the arrays in messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from jaxtyping import Integer

from dorylax.graph.arrays import as_array
from dorylax.graph.compressed import AnyGraph, SelfLoops, assemble
from dorylax.graph.rows import Ids, Offsets, all_rows, compress, edge_ids_fit, sorted_by, spans, transpose
from dorylax.graph.transform import Coalesce, require_ids_for
from dorylax.graph.transform import coalesce as coalesced
from dorylax.graph.validate import (
    GraphError,
    as_integers,
    check_finite,
    check_length,
    check_num_vertices,
    check_offsets,
    check_printable,
    check_range,
)


def from_incoming(
    kind: type[AnyGraph],
    offsets: npt.ArrayLike,
    sources: npt.ArrayLike,
    *,
    edge_data: Mapping[str, Any] | None = None,
    edge_ids: bool = True,
    **known: Any,
) -> AnyGraph:
    """A graph of compressed rows by destination; see `Graph.from_csr`. `known` are options of `assemble`."""
    row_offsets, ids = _valid_rows(
        as_integers("offsets", offsets), as_integers("sources", sources), ("offsets", "sources")
    )
    known |= _edges_known(edge_data, len(ids), edge_ids=edge_ids)
    if rows_are_sorted(row_offsets, ids):
        return assemble(kind, row_offsets, ids, **known)
    with_ids = edge_ids and edge_ids_fit(len(ids))
    row_offsets, ids, places = compress(ids, all_rows(row_offsets), len(row_offsets) - 1, with_positions=with_ids)
    return assemble(kind, row_offsets, ids, **known, placed=places if with_ids else "target")


def from_outgoing(
    kind: type[AnyGraph],
    offsets: np.ndarray,
    targets: np.ndarray,
    names: tuple[str, str],
    *,
    edge_data: Mapping[str, Any] | None = None,
    symmetric: bool | None = None,
    self_loops: SelfLoops | None = None,
    edge_ids: bool = True,
) -> AnyGraph:
    """A graph of compressed rows by source; an edge's id is its place in `targets`, sorted or not.

    Rows that are said to be `symmetric` are checked. They may come with their `self_loops`, which saves two passes.
    """
    row_offsets, ids = _valid_rows(as_integers(names[0], offsets), as_integers(names[1], targets), names)
    is_sorted, num_vertices = rows_are_sorted(row_offsets, ids), len(row_offsets) - 1
    known = _edges_known(edge_data, len(ids), edge_ids=edge_ids)
    if symmetric and is_sorted:
        facts: dict[str, Any] = {} if self_loops is None else {"symmetric": True, "self_loops": self_loops}
        graph = assemble(kind, row_offsets, ids, placed="source", **facts, **known)
    else:
        with_ids = edge_ids and not is_sorted and edge_ids_fit(len(ids))
        *rows, places = transpose(row_offsets, ids, num_vertices, with_positions=with_ids)
        graph = assemble(kind, *rows, placed="source" if places is None else places, **known)
    if symmetric and not graph.symmetric:
        raise GraphError("directed is false, but there are edges without their reverse")
    return graph


def from_pairs(
    kind: type[AnyGraph],
    sources: np.ndarray,
    targets: np.ndarray,
    names: tuple[str, str],
    num_vertices: int | None,
    *,
    edge_data: Mapping[str, Any] | None = None,
    coalesce: bool | Coalesce = False,
    edge_ids: bool = True,
    ids: Integer[np.ndarray, " E"] | None = None,
    finite: bool = True,
) -> AnyGraph:
    """A graph of the edges `sources[k]` → `targets[k]`; see `Graph.from_coo`. `ids`, ascending, are places by default."""
    if coalesce is True or (coalesce is not False and coalesce not in get_args(Coalesce)):
        raise GraphError(
            'coalesce must be False, "first" (keep the first of equal edges) or "sum" (add their values), '
            f"got {coalesce!r}"
        )
    if len(sources) != len(targets):
        lengths = f"{names[0]} has length {len(sources)} and {names[1]} has length {len(targets)}"
        raise GraphError(f"{lengths}: expected one of each per edge")
    if num_vertices is None:
        num_vertices = 1 + max(int(sources.max()), int(targets.max()), -1) if len(sources) else 0
    check_num_vertices(num_vertices)
    check_range(names[0], sources, num_vertices, "num_vertices")
    check_range(names[1], targets, num_vertices, "num_vertices")
    known = _edges_known(edge_data, len(sources), edge_ids=edge_ids, finite=finite)
    placed: Any = "target" if sorted_by(targets, sources) else "source" if sorted_by(sources, targets) else None
    sources, targets = sources.astype(np.int32, copy=False), targets.astype(np.int32, copy=False)
    with_ids = edge_ids and placed is None and edge_ids_fit(len(sources))
    offsets, sources, places = compress(sources, targets, num_vertices, with_positions=with_ids)
    graph = assemble(
        kind,
        offsets,
        sources,
        placed=placed or (places if with_ids else "target"),
        edge_ids=None if ids is None else ids.astype(np.int32),
        **known,
    )
    return graph if coalesce is False else coalesced(graph, coalesce)


def _edges_known(
    edge_data: Mapping[str, Any] | None, num_edges: int, *, edge_ids: bool, finite: bool = True
) -> dict[str, Any]:
    """Arguments of a graph for the values of its edges, checked and without copies of arrays, and for their ids."""
    given, found = edge_data or {}, {}
    if given and not edge_ids:
        raise GraphError(f"edge_data {', '.join(map(str, given))} with edge_ids=False: values per edge need edge ids")
    require_ids_for(given, num_edges)
    for name, values in given.items():
        if not isinstance(name, str) or not name:
            raise GraphError(f"names of edge_data must be text, got {name!r}")
        check_printable("the name of edge_data", name)
        label = f"edge_data[{name!r}]"
        array = found[name] = as_array(label, values, "encode it as numbers or leave it out")
        check_length(label, array, num_edges, "one per edge")
        if finite:
            check_finite(label, array, "replace it or drop the edge; Graph.from_coo(…, finite=False) keeps it")
    return {"edge_data": found, "without_edge_ids": not edge_ids}


def _valid_rows(offsets: np.ndarray, ids: np.ndarray, names: tuple[str, str]) -> tuple[Offsets, Ids]:
    check_offsets(names[0], offsets, len(ids), names[1])
    num_vertices = len(offsets) - 1
    check_num_vertices(num_vertices)
    check_range(names[1], ids, num_vertices, "num_vertices")
    return offsets.astype(np.int64, copy=False), ids.astype(np.int32, copy=False)


def rows_are_sorted(offsets: Offsets, ids: Ids) -> bool:
    """Whether neighbours ascend in every row, equal ones allowed."""
    for start, stop in spans(len(ids)):
        first = max(start, 1)
        falls = np.flatnonzero(ids[first:stop] < ids[first - 1 : stop - 1]) + first
        if not (offsets[np.searchsorted(offsets, falls)] == falls).all():  # a fall is in order where a row begins
            return False
    return True
