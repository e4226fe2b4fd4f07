"""pandas tables with a row per edge."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import numpy as np

from dorylax.graph.build import from_pairs
from dorylax.graph.graph import Coalesce, Graph
from dorylax.graph.importers.base import collection, numbers
from dorylax.graph.validate import GraphError, as_integers


def from_dataframe(
    edges: Any,
    source: Hashable = "source",
    target: Hashable = "target",
    num_vertices: int | None = None,
    *,
    ignore: Collection[Hashable] = (),
    coalesce: bool | Coalesce = False,
) -> Graph:
    """A graph of a `pandas.DataFrame`: row k is edge k, its index is not looked at, and other columns become `edge_data`.

    Args:
        edges: the table, E rows.
        source: the column of sources, integers.
        target: the column of targets, integers.
        num_vertices: V; None takes one more than the largest id.
        ignore: columns to leave out.
        coalesce: as in `Graph.from_coo`.

    Raises:
        GraphError: there is no such column, vertices are not integers, or another column is no real numbers.
    """
    collection("ignore", ignore)
    columns = list(edges.columns)
    for role, name in (("source", source), ("target", target)):
        if columns.count(name) != 1:
            raise GraphError(
                f"{role}={name!r} must be one column of the table, whose columns are {', '.join(map(repr, columns))}"
            )
    names = (f"column {source!r}", f"column {target!r}")
    ends = [_values(edges[name]) for name in (source, target)]
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
        remedy = f"convert it, or leave it out with ignore=[{name!r}]"
        data[name] = numbers(f"column {name!r}", _values(edges[name]), remedy)
    sources, targets = (as_integers(name, values) for name, values in zip(names, ends, strict=True))
    return from_pairs(sources, targets, names, num_vertices, edge_data=data, coalesce=coalesce)


def _values(column: Any) -> np.ndarray:
    """A column as NumPy; pandas' own nullable numbers too, where nothing is missing."""
    numpy_dtype = getattr(column.dtype, "numpy_dtype", None)
    complete = numpy_dtype is not None and not column.isna().any()
    values: np.ndarray = column.to_numpy(dtype=numpy_dtype) if complete else column.to_numpy()
    return values
