"""Estimated operations against numbers counted by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from dorylax.jax_internals import JaxprEqn, make_jaxpr_of, threefry2x32_p
from dorylax.ops.primitives.operator import TRANSCENDENTAL
from dorylax.program.jaxpr.flops import THREEFRY, equation_flops, may_go_on, product_flops

SIZES = {"n": 7, "e": 30}
N, E = export.symbolic_shape("n, e")


def array(*shape: Any, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def last(function: Any, *operands: jax.ShapeDtypeStruct) -> JaxprEqn:
    """The last equation of a function."""
    return make_jaxpr_of(function, *operands).jaxpr.eqns[-1]


def softmax_of(kernel: Any) -> Any:
    return lambda x: lax.scan(lambda h, _: (jnp.tanh(h @ kernel), None), x, None, length=5)[0]


@pytest.mark.parametrize(
    ("function", "operands", "expected"),
    [
        pytest.param(lax.dot, [array(N, 5), array(5, 4)], 2 * 7 * 4 * 5, id="matmul"),
        pytest.param(jnp.inner, [array(5), array(5)], 10, id="inner"),
        pytest.param(
            lambda a, b: lax.dot_general(a, b, (([0], [0]), ([], []))), [array(N, 5), array(N, 4)], 280, id="xᵀy"
        ),
        pytest.param(lax.batch_matmul, [array(N, 2, 3), array(N, 3, 4)], 2 * 7 * 2 * 3 * 4, id="batch"),
        pytest.param(
            lambda x, k: lax.conv_general_dilated(x, k, (1,), "VALID", feature_group_count=2),
            [array(N, 4, 10), array(6, 2, 3)],
            2 * (7 * 6 * 8) * (2 * 3),
            id="convolution",
        ),
        pytest.param(lax.add, [array(N, 5), array(N, 5)], 35, id="add"),
        pytest.param(lax.exp, [array(E, 2)], 60 * TRANSCENDENTAL, id="exp"),
        pytest.param(lax.rsqrt, [array(N)], 7 * TRANSCENDENTAL, id="rsqrt"),
        pytest.param(lambda x: lax.reduce_sum(x, (1,)), [array(N, 5)], 35, id="sum"),
        pytest.param(lambda x: lax.argmax(x, 1, "int32"), [array(N, 5)], 35, id="argmax"),
        pytest.param(lambda x: lax.cumsum(x, 1), [array(N, 5)], 35, id="cumsum"),
        pytest.param(
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 1), "VALID"), [array(N, 5)], 63, id="pool"
        ),
        pytest.param(lambda x: lax.sort(x, dimension=1), [array(N, 5)], 35 * 3, id="sort"),
        pytest.param(lambda x: lax.top_k(x, 2), [array(N, 5)], 35 * 3, id="top_k"),
        pytest.param(lambda x: lax.fft(x, "FFT", (8,)), [array(N, 8, dtype="complex64")], 5 * 56 * 3, id="fft"),
        pytest.param(
            lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True),
            [array(3, 3), array(3, 4)],
            2 * 3 * 4 * 3,
            id="solve",
        ),
        pytest.param(lambda x: lax.reshape(x, (x.shape[0], 1, 5)), [array(N, 5)], 0, id="reshape"),
        pytest.param(lambda x: lax.slice_in_dim(x, 0, 2, axis=1), [array(N, 5)], 0, id="slice"),
        pytest.param(lambda x: lax.transpose(x, (1, 0)), [array(N, 5)], 0, id="transpose"),
        pytest.param(lambda x, i: x[i], [array(9, 5), array(N, dtype="int32")], 0, id="embedding"),
        pytest.param(softmax_of(jnp.eye(4)), [array(N, 4)], 5 * (2 * 7 * 4 * 4 + TRANSCENDENTAL * 28), id="scan"),
        pytest.param(
            lambda i, x: lax.switch(i, [lax.neg, lax.exp], x), [array(dtype="int32"), array(N)], 70, id="cond"
        ),
        pytest.param(jax.jit(lambda x: lax.exp(x) + 1), [array(N)], 77, id="jit"),
        pytest.param(
            threefry2x32_p.bind,
            [array(N, 2, dtype="uint32")] * 4,
            14 * THREEFRY,
            id="hash",
        ),
    ],
)
def test_operations_counted_by_hand(function: Any, operands: list[Any], expected: int) -> None:
    assert equation_flops(last(function, *operands), SIZES) == expected


def test_what_an_unknown_primitive_counts() -> None:
    assert equation_flops(last(lambda x: lax.nextafter(x, x), array(N, 5)), SIZES) == 35


def test_operations_of_products_alone():
    """Also inside of what calls others; elementwise ones are none of them."""
    x, w = array(N, 4), array(4, 3)

    def layer(x, w):
        return jax.nn.relu(x @ w)

    equations = jax.make_jaxpr(lambda x, w: jax.jit(layer)(x, w) + 1)(x, w).eqns
    count = SIZES["n"]
    assert sum(product_flops(equation, SIZES) for equation in equations) == 2 * count * 4 * 3
    assert sum(equation_flops(equation, SIZES) for equation in equations) > 2 * count * 4 * 3


def test_loops_that_may_go_on():
    """Also inside of what calls others; one with fixed bounds is none of them."""

    def halve(x):
        return lax.while_loop(lambda h: h.sum() > 1, lambda h: h / 2, x)

    def grow(x):
        return lax.fori_loop(0, 3, lambda _, h: h + 1, x)

    found = [may_go_on(last(one, array(4))) for one in (halve, jax.jit(halve), jax.vmap(halve), grow, jnp.sin)]
    assert found == [True, True, True, False, False]
