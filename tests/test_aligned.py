from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dorylax import aligned


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (7,), (2, 3, 4)])
def test_aligned_for_xla(shape: tuple[int, ...], dtype: type) -> None:
    for _ in range(5):
        array = aligned.empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert not array.size or array.ctypes.data % 64 == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_rows_in_another_order() -> None:
    array = np.arange(12.0).reshape(4, 3)
    order = np.array([2, 0, 3, 1])
    taken = aligned.rows_of(array, order)
    np.testing.assert_array_equal(taken, array[order])
    assert taken.ctypes.data % 64 == 0
