"""Which axis of a shape counts rows."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax import export

from dorylax.program.rows.axes import RowAxisError, row_axis


def _n() -> Any:
    return export.symbolic_shape("n, e")


def test_shapes_that_count_no_rows():
    n, e = _n()
    for size in (n + 1, n * n, n * e, n // 2, 2 * n + e, -2 * n, jax.core.max_dim(n, 7), n % 3):
        with pytest.raises(RowAxisError, match="constant multiple"):
            row_axis((size, 3))
    for shape in ((n, n), (n, e), (2 * n, 3, n)):
        with pytest.raises(RowAxisError, match="two axes of rows"):
            row_axis(shape)
    with pytest.raises(RowAxisError, match="constant multiple"):
        row_axis((n,), vertices="m")
