"""The features of a data set's vertices: one row of real numbers for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32

from dorylax.graph.arrays import as_array
from dorylax.graph.validate import GraphError, check_finite, check_length

_SAMPLE = 4096


def checked_features(features: Any, num_vertices: int) -> Float32[np.ndarray, "V F"]:
    """Features of any real type as float32 `[V, F]`, without a copy where they are that already.

    Raises:
        GraphError: there are none, they are of another shape or no real numbers, or one is not finite.
    """
    if features is None:
        raise GraphError(
            "features is None: if vertices have none, give what the model should start from, as np.ones((V, 1)) or degrees"
        )
    array = as_array("features", features, "encode it as numbers")
    if array.ndim == 1 and len(array) == num_vertices:
        raise GraphError(f"features has shape {list(array.shape)}: one column is features[:, None], [V, 1]")
    if array.ndim != 2:
        raise GraphError(f"features must be real numbers [V, F], got {array.dtype} {list(array.shape)}")
    if array.shape[1] == 0:
        raise GraphError(f"features has shape {list(array.shape)}: expected at least one column, F ≥ 1")
    if array.shape == (array.shape[0], num_vertices) and len(array) != num_vertices:
        raise GraphError(f"features has shape {list(array.shape)}, [F, V]: expected one row per vertex, features.T")
    check_length("features", array, num_vertices, "one row per vertex")
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes infinite, and is then refused
        array = array.astype(np.float32, copy=False)
    check_finite("features", array)
    return array


def largest_column(features: Float32[np.ndarray, "V F"]) -> float:
    """The root mean square of the column where it is largest, on at most 4,096 rows, evenly apart."""
    rows = features[:: max(1, -(-len(features) // _SAMPLE))]
    squares = np.einsum("vf,vf->f", rows, rows)  # without a copy of the rows
    return float(np.sqrt(squares.max() / len(rows))) if len(rows) else 0.0
