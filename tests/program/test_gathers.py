"""Arithmetic around a gather is folded into it, and rows are stored in bfloat16 where they are summed over neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax import ops
from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program.gathers import fold, narrow
from dorylax.program.tracing.flatten import flatten

V, F = 20, 5
GRAPH = messy_graph(V)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(V, F)).astype(np.float32)
COLUMN = RNG.uniform(0.5, 2, (V, 1)).astype(np.float32)
LOOPS = RNG.integers(0, 2, (V, 1)).astype(np.float32)
SCALAR = np.float32(1.25)
GIVEN = (X, COLUMN, LOOPS, SCALAR)


def flat(fun: Callable[..., Any], *given: Any) -> ClosedJaxpr:
    return flatten(make_jaxpr_of(fun, *given), custom=True)


def folded(closed: ClosedJaxpr) -> list[dict[str, Any]]:
    """Of each folded gather: its parameters, with how many loops and factors it reads."""
    found = [equation for equation in closed.jaxpr.eqns if equation.primitive.name == "dorylax_gather_scaled"]
    return [
        {**equation.params, "loops": equation.invars[1].aval.size, "scale": equation.invars[2].aval.size}
        for equation in found
    ]


def names(closed: ClosedJaxpr) -> list[str]:
    return [equation.primitive.name for equation in closed.jaxpr.eqns]


def check(fun: Callable[..., Any], *given: Any) -> ClosedJaxpr:
    """The folded jaxpr, which computes the same."""
    closed = flat(fun, *given)
    after = fold(closed)
    assert [var.aval for var in after.jaxpr.invars] == [var.aval for var in closed.jaxpr.invars]
    results = [jax.jit(lambda *x, one=one: eval_jaxpr(one.jaxpr, one.consts, *x))(*given) for one in (closed, after)]
    for wanted, got in zip(*results, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    return after


def neighbours(x: Any) -> Any:
    return ops.gather(GRAPH, x)


def normalised(h: Any, c: Any, w: Any) -> Any:
    return c * (neighbours(h) + w * h)


# `(x, column, loops, scalar) -> y`; then own, loops read, factors read.
FORMS: dict[str, tuple[Callable[..., Any], bool, int, int]] = {
    "normalised": (lambda x, c, w, s: normalised(x, c, w), True, V, V),
    "the other way round": (lambda x, c, w, s: (x * w + neighbours(x)) * c, True, V, V),
    "all loops": (lambda x, c, w, s: c * (neighbours(x) + jnp.ones((V, 1)) * x), True, 0, V),
    "itself": (lambda x, c, w, s: neighbours(x) + x, True, 0, 0),
    "scalar loops": (lambda x, c, w, s: (1 + s) * x + neighbours(x), True, V, 0),
    "number of loops": (lambda x, c, w, s: 1.5 * x + neighbours(x), True, V, 0),
    "mean": (lambda x, c, w, s: neighbours(x) / c, False, 0, V),
    "mean of ops": (lambda x, c, w, s: ops.gather(GRAPH, x, reduce="mean"), False, 0, V),
    "mean by the inverse": (lambda x, c, w, s: (1 / c) * neighbours(x), False, 0, V),
    "mean with itself": (lambda x, c, w, s: (x + neighbours(x)) / (c + 1), True, 0, V),
    "several factors": (lambda x, c, w, s: 0.9 * (c * (neighbours(x) / w.clip(1)) * s), False, 0, V),
    "broadcast": (lambda x, c, w, s: jnp.broadcast_to(c, x.shape) * neighbours(x), False, 0, V),
    "a vector": (lambda x, c, w, s: c[:, 0][:, None] * neighbours(x), False, 0, V),
    "three axes": (lambda x, c, w, s: c[:, :, None] * neighbours(jnp.stack([x, -x], 1)), False, 0, V),
    "one column": (lambda x, c, w, s: normalised(x[:, :1], c, w), True, V, V),
}


@pytest.mark.parametrize("name", list(FORMS))
def test_forms(name: str) -> None:
    fun, own, loops, scale = FORMS[name]
    after = check(fun, *GIVEN)
    (found,) = folded(after)
    assert (found["own"], found["loops"], found["scale"]) == (own, loops, scale)
    assert "dorylax_gather_sum" not in names(after)


@pytest.mark.parametrize("name", list(FORMS))
def test_the_gradient_is_folded_where_it_has_such_a_form(name: str) -> None:
    fun, own, _, _ = FORMS[name]

    def gradient(x: Any, *rest: Any) -> Any:
        return jax.vjp(lambda x: fun(x, *rest), x)[1](jnp.cos(fun(x, *rest)))[0]

    after = check(gradient, *GIVEN)
    assert [found["own"] for found in folded(after) if found["direction"] == "out"] == [True] * own


def test_hops_are_folded_each() -> None:
    def hop(x: Any, c: Any, w: Any) -> Any:
        return normalised(c * x, c, w)

    after = check(lambda x, c, w, s: hop(hop(x, c, w), c, w), *GIVEN)
    assert len(folded(after)) == 2
    # The factors of two hops that meet are those of rows: nothing is left of width F but the first.
    wide = [equation for equation in after.jaxpr.eqns if equation.primitive.name == "mul"]
    assert [equation.outvars[0].aval.shape for equation in wide].count((V, F)) == 1


# What only looks like it, and how many folded gathers there are all the same.
OTHERS: dict[str, tuple[Callable[..., Any], int]] = {
    "alone": (lambda x, c, w, s: neighbours(x), 0),
    "the sum is read too": (lambda x, c, w, s: (c * (y := neighbours(x)), y.sum()), 0),
    "the sum is a result": (lambda x, c, w, s: (c * (y := neighbours(x)), y), 0),
    "of another": (lambda x, c, w, s: neighbours(x) + w * jnp.sin(x), 0),
    "another factor for each column": (lambda x, c, w, s: neighbours(x) * x, 0),
    "a factor of columns": (lambda x, c, w, s: neighbours(x) * x[:1], 0),
    "the divisor": (lambda x, c, w, s: c / (neighbours(x) + 100), 0),
    "wider than the sum": (lambda x, c, w, s: x * neighbours(c), 0),
    "added later": (lambda x, c, w, s: c * neighbours(x) + w * x, 1),
    "twice itself": (lambda x, c, w, s: neighbours(x) + x + x, 1),
    "squared": (lambda x, c, w, s: jnp.square(neighbours(x[:, :1]) + w), 0),
    "times itself": (lambda x, c, w, s: (y := neighbours(x[:, :1])) * y, 0),
    "two sums": (lambda x, c, w, s: neighbours(x) + neighbours(c * x), 0),
    "two sums that multiply": (lambda x, c, w, s: neighbours(c) * neighbours(w), 1),
    "weighted": (lambda x, c, w, s: c * ops.gather(GRAPH, x, jnp.ones(GRAPH.num_edges)), 0),
    "mixed rows": (lambda x, c, w, s: c[:F] * neighbours(x).reshape(F, V)[:, :1], 0),
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_what_is_left_alone(name: str) -> None:
    fun, count = OTHERS[name]
    assert len(folded(check(fun, *GIVEN))) == count


def test_loops_that_others_read_stay() -> None:
    def twice(x: Any, c: Any, w: Any, s: Any) -> Any:
        del s
        own = w * x
        return c * (neighbours(x) + own), jnp.sin(own)

    after = check(twice, *GIVEN)
    assert [found["loops"] for found in folded(after)] == [V]
    assert "mul" in names(after)


def test_without_a_gather_nothing_changes() -> None:
    closed = flat(lambda x: jnp.sin(x) + x, X)
    assert names(fold(closed)) == names(closed)


def test_bfloat16_is_rounded_once() -> None:
    """At the end, so closer to the truth than the operators one by one."""

    given = [jnp.asarray(array, jnp.bfloat16) for array in (X, COLUMN, LOOPS)]
    closed = flat(normalised, *given)
    after = fold(closed)
    (found,) = folded(after)
    assert found["dtype"] == jnp.bfloat16
    exact = normalised(*(np.asarray(array, np.float32) for array in given))
    one, two = (
        np.abs(np.asarray(eval_jaxpr(part.jaxpr, part.consts, *given)[0], np.float32) - exact).mean()
        for part in (after, closed)
    )
    assert 0 < one < two


ROUNDED = np.asarray(jnp.asarray(X, jnp.bfloat16), np.float32)


def folded_flat(fun: Any, *given: Any) -> ClosedJaxpr:
    return fold(flatten(make_jaxpr_of(fun, *given), custom=True))


def run(closed: ClosedJaxpr, *given: Any) -> list[Any]:
    return jax.jit(lambda *given: eval_jaxpr(closed.jaxpr, closed.consts, *given))(*given)


def gathered(closed: ClosedJaxpr) -> list[tuple[str, Any, Any]]:
    """Of each operator of the graph that reads rows: its name, and the dtypes of rows and results."""
    found = [equation for equation in closed.jaxpr.eqns if equation.primitive.name.startswith("dorylax_gather")]
    return [(eqn.primitive.name[8:], eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype) for eqn in found]


def normalised_rows(x: Any) -> Any:
    return 0.5 * (ops.gather(GRAPH, x) + 1.25 * x)


@pytest.mark.parametrize("model", [lambda x: ops.gather(GRAPH, x), normalised_rows], ids=["sum", "normalised_rows"])
def test_it_sums_rounded_rows_in_float32(model: Any) -> None:
    after = narrow(folded_flat(model, X))
    assert gathered(after) == [("gather_scaled", jnp.bfloat16, jnp.float32)]
    (got,) = run(after, X)
    np.testing.assert_allclose(got, model(ROUNDED), rtol=1e-5, atol=1e-6)
    assert not np.allclose(got, model(X), rtol=1e-4, atol=1e-6)


def test_the_gradient_too() -> None:
    after = narrow(folded_flat(jax.grad(lambda x: (normalised_rows(x) ** 2).sum()), X))
    assert gathered(after) == [("gather_scaled", jnp.bfloat16, jnp.float32)] * 2


@pytest.mark.parametrize(
    "model",
    [
        lambda x: ops.gather(GRAPH, x, jnp.ones(GRAPH.num_edges)),
        lambda x: ops.gather(GRAPH, x, reduce="max"),
        lambda x: ops.gather(GRAPH, x.astype(jnp.bfloat16)),
        jnp.sin,
    ],
    ids=["weighted", "maximum", "bfloat16 already", "no gather"],
)
def test_all_else_stays(model: Any) -> None:
    closed = folded_flat(model, X)
    after = narrow(closed)
    assert gathered(after) == gathered(closed)
    np.testing.assert_array_equal(run(after, X)[0], run(closed, X)[0])


def test_float64_stays() -> None:
    with jax.enable_x64(True):
        wide = X.astype(np.float64)
        assert gathered(narrow(folded_flat(normalised_rows, wide))) == [("gather_scaled", jnp.float64, jnp.float64)]
