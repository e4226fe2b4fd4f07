"""What depends on a row's place depends on its id instead: the same for any choice and order of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.jax_internals import eval_jaxpr, make_jaxpr_of
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.jaxpr.rewrite import instantiate
from dorylax.program.jaxpr.symbols import Dimensions, new_dimensions
from dorylax.program.tracing.flatten import RowNumbers, flatten

V, E = 11, 17
ROWS = np.array([7, 0, 3, 3, 10], np.int32)  # an interval's rows: some, in any order, one twice
EDGES = np.array([16, 2], np.int32)
NUMBERS = RowNumbers(numbers={"vertex": 0, "edge": 1}, counts={"vertex": 2, "edge": 3})


def replaced(fun: Callable[[Any, Dimensions], Any], *, custom: bool = True) -> Callable[..., Any]:
    """`fun(key, dimensions)`, computed for the chosen rows alone."""
    sizes = new_dimensions()
    specs = [
        jax.ShapeDtypeStruct((sizes.vertices,), jnp.int32),
        jax.ShapeDtypeStruct((sizes.edges,), jnp.int32),
        jax.ShapeDtypeStruct((), jnp.int32),
        jax.ShapeDtypeStruct((), jnp.int32),
        jax.eval_shape(lambda: jax.random.key(0)),
    ]
    closed = make_jaxpr_of(lambda *inputs: fun(inputs[4], sizes), *specs)
    part = instantiate(flatten(closed, custom=custom, row_numbers=NUMBERS), {"n": len(ROWS), "e": len(EDGES)})

    def run(key: Any) -> Any:
        inputs = (ROWS, EDGES, np.int32(V), np.int32(E), key)
        (result,) = eval_jaxpr(part.jaxpr, part.consts, *inputs)
        return np.asarray(result)

    return run


KEY = jax.random.key(5)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_bits_are_those_of_the_whole_array_row_by_row(bits: int) -> None:
    with jax.enable_x64(bits == 64):
        dtype = f"uint{bits}"
        drawn = replaced(lambda key, sizes: jax.random.bits(key, (sizes.vertices, 3), dtype))(KEY)
        assert drawn.dtype == dtype
        np.testing.assert_array_equal(drawn, np.asarray(jax.random.bits(KEY, (V, 3), dtype))[ROWS])


def test_rows_need_not_be_the_first_axis() -> None:
    drawn = replaced(lambda key, sizes: jax.random.normal(key, (2, 3, sizes.edges)))(KEY)
    # A row's numbers are those of [E, 2, 3]: by place they would depend on the number of rows.
    expected = jax.random.normal(KEY, (E, 2, 3))[EDGES]
    np.testing.assert_allclose(drawn, np.moveaxis(expected, 0, -1), rtol=1e-6)


def test_a_number_for_each_row() -> None:
    drawn = replaced(lambda key, sizes: jax.random.bernoulli(key, 0.3, (sizes.vertices,)))(KEY)
    np.testing.assert_array_equal(drawn, np.asarray(jax.random.bernoulli(KEY, 0.3, (V,)))[ROWS])


def test_what_has_no_rows_is_drawn_as_ever() -> None:
    np.testing.assert_array_equal(
        replaced(lambda key, sizes: jax.random.bits(key, (4,)))(KEY), jax.random.bits(KEY, (4,))
    )


@pytest.mark.parametrize(
    ("draw", "shape"),
    [
        (lambda key, sizes: jax.random.bits(key, (sizes.vertices, sizes.edges)), "[n, e]"),
        (lambda key, sizes: jax.random.bits(key, (sizes.vertices, sizes.vertices)), "[n, n]"),
        (lambda key, sizes: jax.random.bits(key, (2 * sizes.vertices,)), "[2*n]"),
        (
            lambda key, sizes: jax.vmap(lambda k: jax.random.bits(k, (sizes.vertices,)))(jax.random.split(key, 3)),
            "[n]",
        ),
    ],
    ids=["two spaces", "twice", "factor", "batch of keys"],
)
def test_what_cannot_be_drawn_row_by_row_is_refused(draw: Callable[..., Any], shape: str) -> None:
    with pytest.raises(SplitError) as caught:
        replaced(draw)
    assert f"randomness of shape {shape} cannot" in str(caught.value)
    assert "at test_row_numbers.py:" in str(caught.value)


def test_iota_over_rows_gives_ids() -> None:
    np.testing.assert_array_equal(replaced(lambda key, sizes: jnp.arange(sizes.vertices))(KEY), ROWS)
    table = replaced(lambda key, sizes: jax.lax.broadcasted_iota(jnp.float32, (2, sizes.edges, 3), 1))(KEY)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table, np.broadcast_to(EDGES[:, None].astype(np.float32), (2, 2, 3)))
    columns = replaced(lambda key, sizes: jax.lax.broadcasted_iota(jnp.int32, (sizes.edges, 3), 1))(KEY)
    np.testing.assert_array_equal(columns, [[0, 1, 2]] * 2)


@jax.custom_jvp
def over_rows(x: Any) -> Any:
    return x / x.shape[0]


over_rows.defjvp(lambda primals, tangents: (over_rows(*primals), tangents[0] / tangents[0].shape[0]))


def test_numbers_of_rows_are_those_of_the_whole_graph() -> None:
    size = lambda key, sizes: jnp.asarray(2 * sizes.vertices * sizes.edges - 1, jnp.float32)  # noqa: E731
    assert replaced(size)(KEY) == 2 * V * E - 1
    mean = replaced(lambda key, sizes: over_rows(jnp.ones((sizes.vertices,))))(KEY)
    np.testing.assert_allclose(mean, np.full(len(ROWS), 1 / V), rtol=1e-6)
    tangent = replaced(lambda key, sizes: jax.jvp(over_rows, *[(jnp.ones((sizes.edges,)),)] * 2)[1])(KEY)
    np.testing.assert_allclose(tangent, np.full(len(EDGES), 1 / E), rtol=1e-6)
