"""The features of a data set's vertices: a row of real numbers for each, given dense or in compressed sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32

from dorylax.graph.arrays import as_array
from dorylax.graph.room import check_room, gibibytes
from dorylax.graph.validate import (
    MAX_VERTICES,
    GraphError,
    as_held,
    as_integers,
    check_length,
    check_numbers,
    check_offsets,
    check_range,
)

_SAMPLE = 4096
# Even a few words of a hundred thousand in each row are denser.
_RARE_BYTES, _RARE_INFLATION = 2**30, 10_000


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

    Raises:
        GraphError: the arrays do not make a matrix of that shape, or it does not fit in memory.
    """
    from scipy.sparse import csr_array

    sizes = as_integers(f"{prefix}shape", np.asarray(shape))
    if len(sizes) != 2:
        raise GraphError(f"{prefix}shape must be (V, F), two numbers, got {len(sizes)}")
    check_range(f"{prefix}shape", sizes, MAX_VERTICES, "the largest number of rows or columns")
    rows, columns = map(int, sizes)
    as_integers(f"{prefix}indptr", indptr)
    as_integers(f"{prefix}indices", indices)
    check_numbers(f"{prefix}data", data, "N")
    check_length(f"{prefix}indptr", indptr, rows + 1, f"one more than {prefix}shape[0]")
    check_length(f"{prefix}data", data, len(indices), f"one per entry of {prefix}indices")
    check_offsets(f"{prefix}indptr", indptr, len(indices), f"{prefix}indices")
    check_range(f"{prefix}indices", indices, columns, f"{prefix}shape[1]")
    size, stored = 4 * rows * columns, indptr.nbytes + indices.nbytes + data.nbytes
    check_room(f"{prefix}shape = ({rows:,}, {columns:,}), made dense,", size)
    if size > _RARE_BYTES and size > _RARE_INFLATION * stored:
        raise GraphError(
            f"{prefix}shape = ({rows:,}, {columns:,}) makes {gibibytes(size)} of {stored:,} bytes: where that is meant, "
            "store the features dense"
        )
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite; `Dataset` refuses that
        values = data.astype(np.float32, copy=False)
    dense: np.ndarray = csr_array((values, indices, indptr), shape=(rows, columns)).toarray()
    return dense
