"""Published features in compressed sparse rows, made dense after checking that the arrays fit each other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from dorylax.graph.validate import as_integers, check_length, check_offsets, check_range


def dense_rows(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int]
) -> Float32[np.ndarray, "V F"]:
    """The matrix, duplicates added up.

    Args:
        indptr: where each row's entries start, integers `[V+1]`.
        indices: column of each entry, integers `[N]`.
        data: value of each entry, `[N]`.
        shape: (V, F).

    Raises:
        GraphError: the arrays do not make a matrix of that shape.
    """
    from scipy.sparse import csr_array

    rows, columns = (int(n) for n in shape)
    check_length("indptr of the features", indptr, rows + 1, "one more than rows")
    check_length("data of the features", data, len(indices), "one per entry of indices")
    check_offsets("indptr of the features", as_integers("indptr", indptr), len(indices), "indices")
    check_range("indices of the features", as_integers("indices", indices), columns, "columns")
    values = data.astype(np.float32, copy=False)
    dense: np.ndarray = csr_array((values, indices, indptr), shape=(rows, columns)).toarray()
    return dense
