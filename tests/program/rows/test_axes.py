"""Which axis of a shape counts rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from dorylax.program.rows.axes import RowAxisError, has_symbols, row_axis
from dorylax.program.rows.types import Rows


def _n() -> Any:
    return export.symbolic_shape("n, e")


def test_row_axis():
    n, e = _n()
    assert row_axis((n, 3)) == Rows("vertex", 0)
    assert row_axis((3, 4 * e)) == Rows("edge", 1, 4)
    assert row_axis((3, 4)) is None
    assert row_axis(()) is None
    assert row_axis((np.int64(3), n)) == Rows("vertex", 1)
    assert row_axis((n, 3), vertices="e", edges="n") == Rows("edge", 0)


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


def test_sizes_among_parameters():
    n, _ = _n()
    assert has_symbols([3, (4, {"a": (n + 1, 2)})])
    assert not has_symbols([3, (4, "n"), None, {"a": 2.0}, np.int64(3), jnp.float32])
