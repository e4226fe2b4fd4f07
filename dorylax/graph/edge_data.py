"""Values that come with the edges of a graph: checked once, and taken along by whatever changes the edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dorylax.graph.arrays import as_array
from dorylax.graph.transpose import MAX_EDGE_IDS, edge_ids_fit
from dorylax.graph.validate import GraphError, check_finite, check_length, check_printable

EdgeData = dict[str, np.ndarray]


def checked_edge_data(edge_data: Mapping[str, Any] | None, num_edges: int, *, finite: bool = True) -> EdgeData:
    """Real numbers or truth values as arrays `[E, …]` under their names, without copies of arrays.

    Raises a GraphError for a name that is no text, another length, values that are not real numbers or (with `finite`)
    not finite, and more edges than int32 counts.
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
