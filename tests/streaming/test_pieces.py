"""A stage piece by piece gives what it gives for all rows at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.jax_internals import make_jaxpr_of
from dorylax.program.jaxpr.symbols import new_dimensions
from dorylax.program.rows.types import Free, Rows, Summed
from dorylax.streaming import slice_steps
from dorylax.streaming.slice_steps import evaluated

READS = (Rows("vertex", 0), Rows("vertex", 1, 2), Free())
WRITES = (Rows("vertex", 0), Rows("vertex", 1, 2), Summed(), Summed())


def _stage(x: Any, y: Any, w: Any) -> tuple[Any, ...]:
    h = jnp.tanh(x @ jnp.tile(w, (1, 4)))[:, :5]  # wider on the way than what comes and goes
    return h * 2, y + 1, x.T @ h, jnp.sum(x[:, 0] > 0)


def _closed(function: Any = _stage) -> Any:
    n = new_dimensions().vertices
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, 3), (4, 2 * n), (3, 5))]
    return make_jaxpr_of(function, *specs)


def _operands(rows: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(rows)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in ((rows, 3), (4, 2 * rows), (3, 5)))


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 128, 640, 1000])
def test_rows_are_the_same_and_sums_as_exact(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(slice_steps, "PIECE_BYTES", 1)  # pieces of 64 rows
    operands = _operands(rows)
    got = jax.jit(evaluated(_closed(), "n", rows, READS, WRITES))(*operands)
    want = [np.asarray(value) for value in _stage(*map(jnp.asarray, operands))]
    for found, expected in zip(got, want, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert int(got[3]) == int((operands[0][:, 0] > 0).sum())


def test_what_is_made_never_exists_for_all_rows() -> None:
    rows = 1 << 16

    def wide(x: Any, y: Any, w: Any) -> tuple[Any, ...]:
        return (jnp.sum(jnp.exp(x @ jnp.tile(w, (1, 100))), axis=1),)

    function = evaluated(_closed(wide), "n", rows, READS, (Rows("vertex", 0),))
    compiled = jax.jit(function).lower(*map(jax.typeof, _operands(rows))).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * slice_steps.PIECE_BYTES + rows * 4


def test_results_that_are_neither_rows_nor_sums() -> None:
    rows = 1000

    def both(x: Any, y: Any, w: Any) -> tuple[Any, ...]:
        return x * 2, w + 1

    operands = _operands(rows)
    doubled, more = evaluated(_closed(both), "n", rows, READS, (Rows("vertex", 0), Free()))(*operands)
    np.testing.assert_array_equal(doubled, operands[0] * 2)
    np.testing.assert_array_equal(more, operands[2] + 1)
