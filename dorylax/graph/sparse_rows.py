"""Features in compressed sparse rows, made dense after checking that the arrays fit each other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from dorylax.graph.room import check_room, gibibytes
from dorylax.graph.validate import (
    MAX_VERTICES,
    GraphError,
    as_integers,
    check_length,
    check_numbers,
    check_offsets,
    check_range,
)

# Even a few words of a hundred thousand in each row are denser.
_RARE_BYTES, _RARE_INFLATION = 2**30, 10_000


def dense_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    shape: tuple[int, int] | np.ndarray,
    prefix: str = "features_",
) -> Float32[np.ndarray, "V F"]:
    """The matrix, duplicates added up.

    Args:
        indptr: where each row's entries start, integers `[V+1]`.
        indices: column of each entry, integers `[N]`.
        data: value of each entry, `[N]`.
        shape: (V, F).
        prefix: what the file that holds the arrays puts before these names, for messages.

    Raises:
        GraphError: the arrays do not make a matrix of that shape, or it does not fit in memory.
    """
    from scipy.sparse import csr_array

    rows, columns = _checked_shape(f"{prefix}shape", shape)
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


def _checked_shape(name: str, shape: tuple[int, int] | np.ndarray) -> tuple[int, int]:
    numbers = as_integers(name, np.asarray(shape))
    if len(numbers) != 2:
        raise GraphError(f"{name} must be (V, F), two numbers, got {len(numbers)}")
    check_range(name, numbers, MAX_VERTICES, "the largest number of rows or columns")
    return int(numbers[0]), int(numbers[1])
