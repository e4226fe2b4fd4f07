"""Inputs of a model: the features of vertices, dense or in compressed sparse rows, and further named arrays.

Further inputs have a row per vertex or per edge and reach the model as keywords, as bool, int32 or float32.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32

from dorylax.graph.arrays import as_array
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.validate import (
    MAX_VERTICES,
    GraphError,
    as_held,
    as_integers,
    check_length,
    check_offsets,
    check_range,
    check_room,
)

_SAMPLE = 4096


def checked_features(features: Any, num_vertices: int) -> Float32[np.ndarray, "V F"]:
    """Features of any real type as float32 `[V, F]`, without a copy where they are that already. Raises a GraphError."""
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
    return as_held("features", array, np.float32)


def largest_column(features: Float32[np.ndarray, "V F"]) -> float:
    """The root mean square of the column where it is largest, on at most 4,096 rows, evenly apart."""
    rows = features[:: max(1, -(-len(features) // _SAMPLE))]
    squares = np.einsum("vf,vf->f", rows, rows)  # without a copy of the rows
    return float(np.sqrt(squares.max() / len(rows))) if len(rows) else 0.0


def dense_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    shape: tuple[int, int] | np.ndarray,
    prefix: str = "features_",
) -> Float32[np.ndarray, "V F"]:
    """The matrix of compressed sparse rows, duplicates added up; `prefix` precedes the arrays' names in messages.

    Raises a GraphError if the arrays do not make a matrix of that shape, or it does not fit in memory.
    """
    from scipy.sparse import csr_array

    sizes = as_integers(f"{prefix}shape", np.asarray(shape))
    if len(sizes) != 2:
        raise GraphError(f"{prefix}shape must be (V, F), two numbers, got {len(sizes)}")
    check_range(f"{prefix}shape", sizes, MAX_VERTICES, "the largest number of rows or columns")
    rows, columns = map(int, sizes)
    as_integers(f"{prefix}indptr", indptr)
    as_integers(f"{prefix}indices", indices)
    if data.ndim != 1 or data.dtype.kind not in "fiub":
        raise GraphError(f"{prefix}data must be real numbers [N], got {data.dtype} {list(data.shape)}")
    check_length(f"{prefix}indptr", indptr, rows + 1, f"one more than {prefix}shape[0]")
    check_length(f"{prefix}data", data, len(indices), f"one per entry of {prefix}indices")
    check_offsets(f"{prefix}indptr", indptr, len(indices), f"{prefix}indices")
    check_range(f"{prefix}indices", indices, columns, f"{prefix}shape[1]")
    check_room(f"{prefix}shape = ({rows:,}, {columns:,}), made dense,", 4 * rows * columns)
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite; `Dataset` refuses them
        values = data.astype(np.float32, copy=False)
    dense: np.ndarray = csr_array((values, indices, indptr), shape=(rows, columns)).toarray()
    return dense


# Arguments of every model: positions, the flags that say whether it trains, and Flax's own keywords.
RESERVED = frozenset(
    {
        *("graph", "x", "features", "labels", "self", "variables", "params"),
        *("train", "training", "is_training", "deterministic", "use_running_average"),
        *("rngs", "method", "mutable", "capture_intermediates"),
    }
)


def held_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a further input is held in: bool, int32 or float32."""
    return np.dtype({"b": np.bool_, "f": np.float32}.get(stored.kind, np.int32))


def checked_inputs(group: str, given: Any, num_rows: int, per: str) -> dict[str, np.ndarray]:
    """Named arrays `[num_rows, …]`, checked and converted to bool, int32 or float32, in order of their names.

    `group` names the argument in messages, and `per` is the reason of the length, as "one row per vertex".

    Raises a GraphError for a name that no keyword can have or that has another meaning, a wrong length or type, and a
    number that is not finite or does not fit.
    """
    _check_mapping(group, given)
    found = {}
    for name in sorted(given, key=str):
        label = f"{group}[{check_name(group, name)!r}]"
        array = as_array(label, given[name])
        check_length(label, array, num_rows, per)
        if array.size == 0 and num_rows:
            raise GraphError(f"{label} has shape {list(array.shape)}: expected at least one number per row")
        found[name] = as_held(label, array, held_dtype(array.dtype))
    return found


def inputs_of(
    graph: CompressedGraph, vertex_inputs: Any, edge_inputs: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The further inputs of a graph's vertices, `[V, …]`, and edges, `[E, …]`; edges' override values of the graph.

    Raises a GraphError as `checked_inputs`, if there are inputs of edges without ids, or if a name is in both groups: a
    model takes one argument of a name.
    """
    of_vertices = checked_inputs("vertex_inputs", vertex_inputs, graph.num_vertices, "one row per vertex")
    _check_mapping("edge_inputs", edge_inputs)
    every = {**graph.edge_data, **edge_inputs}
    if every:
        graph.require_edge_ids()
    of_edges = checked_inputs("edge_inputs", every, graph.num_edges, "one row per edge")
    if both := sorted(of_vertices.keys() & of_edges):
        raise GraphError(f"{both[0]!r} is in vertex_inputs and in edge_inputs: rename one, a model takes it by name")
    return of_vertices, of_edges


def _check_mapping(group: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise GraphError(f"{group} must map names to arrays, as {{'pos': positions}}, got {type(given).__name__}")


def check_name(group: str, name: Any) -> str:
    """A name that a further input may have, as it is; a `GraphError` for any other."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise GraphError(
            f"{group} has the name {name!r}, which no keyword argument can have: rename it, as edge_weight"
        )
    if name in RESERVED:
        raise GraphError(f"{group} has the name {name!r}, which models are called with already: rename it")
    return name
