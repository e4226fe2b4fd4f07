"""pandas tables with a row per edge."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import numpy as np

from dorylax.graph.build import from_pairs
from dorylax.graph.compressed import AnyGraph
from dorylax.graph.importers.base import Imported, collection, numbers
from dorylax.graph.names import stored_names
from dorylax.graph.transform import Coalesce
from dorylax.graph.validate import GraphError, as_integers


def read_edges(
    kind: type[AnyGraph],
    edges: Any,
    source: Hashable,
    target: Hashable,
    num_vertices: int | None,
    *,
    ignore: Collection[Hashable],
    coalesce: bool | Coalesce = False,
) -> AnyGraph:
    """Reads a table of edges into a graph of class `kind`. The other arguments are those of `Graph.from_dataframe`."""
    collection("ignore", ignore)
    columns = list(edges.columns)
    for role, name in (("source", source), ("target", target)):
        if columns.count(name) != 1:
            raise GraphError(
                f"{role}={name!r} must be one column of the table, whose columns are {', '.join(map(repr, columns))}"
            )
    names = (f"column {source!r}", f"column {target!r}")
    ends = [_values(name, edges[column]) for name, column in zip(names, (source, target), strict=True)]
    for name, values in zip(names, ends, strict=True):
        if values.dtype.kind not in "iu":
            raise GraphError(
                f"{name} must hold vertices as integers 0 … V-1, got {values.dtype}: number names by pandas.factorize, over "
                "both columns together"
            )
    data = {}
    for name in columns:
        if name in (source, target) or name in ignore:
            continue
        if not isinstance(name, str) or columns.count(name) > 1:
            raise GraphError(
                f"column {name!r} must have a name of its own, a text: rename it, or leave it out with ignore"
            )
        remedy = f"leave it out with ignore=[{name!r}]"
        data[name] = numbers(f"column {name!r}", _values(f"column {name!r}", edges[name]), remedy)
    sources, targets = (as_integers(name, values) for name, values in zip(names, ends, strict=True))
    return from_pairs(kind, sources, targets, names, num_vertices, edge_data=data, coalesce=coalesce)


def read(
    kind: type[AnyGraph],
    vertices: Any,
    edges: Any,
    *,
    key: Hashable,
    source: Hashable,
    target: Hashable,
    ignore: Collection[Hashable],
) -> Imported[AnyGraph]:
    """A graph of two tables, with the columns of vertices by name.

    Args:
        kind: the class of the graph.
        vertices: a row per vertex.
        edges: a row per edge.
        key: the column of `vertices` that sources and targets name them by; None where these are row numbers.
        source: a column of `edges`.
        target: a column of `edges`.
        ignore: columns to leave out, of either table.

    Raises:
        GraphError: as `Graph.from_dataframe`; without `key`, the index of vertices holds other integers; `key` is no column,
            or lacks a value, repeats one or holds one with NUL; or an edge names no vertex.
    """
    collection("ignore", ignore)
    names = None
    columns = list(vertices.columns)
    repeated = next((name for name in columns if columns.count(name) > 1), None)
    if repeated is not None:
        raise GraphError(f"the table of vertices has two columns {repeated!r}: rename one")
    index = vertices.index
    if key is None and index.dtype.kind in "iu" and not np.array_equal(index, np.arange(len(index))):
        raise GraphError(
            "the index of the table of vertices is not 0 … V-1 in this order, so edges may name vertices by index or by "
            "row: vertices.reset_index() makes it a column for key=…, vertices.reset_index(drop=True) leaves rows"
        )
    if key is not None:
        if key not in columns:
            raise GraphError(
                f"key={key!r} must be a column of the table of vertices, whose columns are {', '.join(map(repr, columns))}"
            )
        vertices = vertices.reset_index(drop=True)
        _values(f"key={key!r}", vertices[key])
        number: dict[Any, int] = {}
        keys = vertices[key].tolist()
        for row, name in enumerate(keys):
            if number.setdefault(name, row) != row:
                raise GraphError(f"key={key!r} holds {name!r} twice: each vertex needs a key of its own")
        names = stored_names(f"key={key!r}", keys)
        edges = edges.copy(deep=False)
        for name in (source, target):
            if name in edges:
                edges[name] = _numbered(edges, name, number, key)
    graph = read_edges(kind, edges, source, target, len(vertices), ignore=ignore)
    return Imported(graph, {name: vertices[name] for name in columns if name not in (key, *ignore)}, {}, names)


def _numbered(edges: Any, column: Hashable, number: dict[Any, int], key: Hashable) -> np.ndarray:
    names = edges[column].tolist()
    unknown = next((row for row, name in enumerate(names) if name not in number), None)
    if unknown is not None:
        raise GraphError(
            f"column {column!r} of row {unknown} names {names[unknown]!r}, which is not a vertex: "
            f"key={key!r} does not hold it"
        )
    return np.array([number[name] for name in names], np.int64)


def _values(name: str, column: Any) -> np.ndarray:
    """A column as NumPy, where nothing is missing; pandas' own nullable numbers as plain ones."""
    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise GraphError(f"{name} has no value in row {missing[0]} ({missing.size} such rows): fill it or drop the row")
    numpy_dtype = getattr(column.dtype, "numpy_dtype", None)
    values: np.ndarray = column.to_numpy() if numpy_dtype is None else column.to_numpy(dtype=numpy_dtype)
    return values
