"""Values that come with the edges of a graph: checked once, and taken along by whatever changes the edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dorylax.graph.arrays import as_array
from dorylax.graph.transpose import MAX_EDGE_IDS, edge_ids_fit
from dorylax.graph.validate import GraphError, check_finite, check_length, check_printable

EdgeData = dict[str, np.ndarray]


def checked_edge_data(edge_data: Mapping[str, Any] | None, num_edges: int, *, finite: bool = True) -> EdgeData:
    """Values by name as arrays `[E, …]`, without copies where they are arrays already.

    Args:
        edge_data: real numbers or truth values, in any form that `as_array` takes.
        num_edges: E.
        finite: Whether to refuse NaN and infinity.

    Raises:
        GraphError: a name that is no text, another length, values that are not real numbers or not finite, or more edges
            than int32 counts.
    """
    if not edge_data:
        return {}
    require_ids_for(edge_data, num_edges)
    found = {}
    for name, values in edge_data.items():
        if not isinstance(name, str) or not name:
            raise GraphError(f"names of edge_data must be text, got {name!r}")
        check_printable("the name of edge_data", name)
        array = as_array(f"edge_data[{name!r}]", values, "encode it as numbers or leave it out")
        check_length(f"edge_data[{name!r}]", array, num_edges, "one per edge")
        if finite:
            check_finite(
                f"edge_data[{name!r}]", array, "replace it or drop the edge; Graph.from_coo(…, finite=False) keeps it"
            )
        found[name] = array
    return found


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


def map_values(edge_data: Mapping[str, np.ndarray], change: Callable[[np.ndarray], np.ndarray]) -> EdgeData:
    """The same names with other values."""
    return {name: change(values) for name, values in edge_data.items()}
