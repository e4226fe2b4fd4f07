from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph import GraphError
from dorylax.graph.sparse_rows import dense_rows


def test_is_the_matrix() -> None:
    dense = dense_rows(np.array([0, 2, 2, 3]), np.array([2, 0, 1]), np.array([5.0, 6.0, 7.0]), (3, 4))
    assert (dense.dtype, dense.tolist()) == (np.float32, [[6, 0, 5, 0], [0, 0, 0, 0], [0, 7, 0, 0]])


@pytest.mark.parametrize(
    ("indptr", "indices", "data", "message"),
    [
        ([0, 1], [0, 1], [1, 1], "features_indptr has length 2"),
        ([0, 1, 1, 2], [0, 1], [1], "features_data has length 1"),
        ([0, 1, 1, 3], [0, 1], [1, 1], "features_indptr"),
        ([0, 2, 1, 2], [0, 1], [1, 1], "features_indptr"),
        ([0, 1, 1, 2], [0, 4], [1, 1], r"features_indices\[1\] = 4 is out of range"),
        ([0, 1, 1, 2], [0, -1], [1, 1], r"features_indices\[1\] = -1 is negative"),
    ],
)
def test_arrays_that_do_not_fit(indptr: list[int], indices: list[int], data: list[int], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        dense_rows(np.array(indptr), np.array(indices), np.array(data), (3, 4))
