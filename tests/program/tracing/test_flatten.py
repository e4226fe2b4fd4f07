"""Flattening: which calls and loops go, which stay, and whose line an equation keeps."""

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
from dorylax.program.jaxpr.errors import SplitError, where_written
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.jaxpr.symbols import new_dimensions
from dorylax.program.tracing.flatten import flatten

V, F = 8, 3
GRAPH = messy_graph(V, 14)
X = np.random.default_rng(0).normal(size=(V, F)).astype(np.float32)


def flat(fun: Callable[..., Any], *values: Any, custom: bool = False) -> ClosedJaxpr:
    """Flattened, after a look that the results are the same."""
    values = values or (X,)
    closed = make_jaxpr_of(fun, *values)
    flattened = flatten(closed, custom=custom)
    before, after = (eval_jaxpr(one.jaxpr, one.consts, *values) for one in (closed, flattened))
    for a, b in zip(after, before, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return flattened


def names(closed: ClosedJaxpr) -> list[str]:
    return [equation.primitive.name for equation in closed.jaxpr.eqns]


def gathers(closed: ClosedJaxpr) -> int:
    return sum(map(is_graph_operator, closed.jaxpr.eqns))


def test_calls_are_inlined() -> None:
    inner = jax.jit(lambda x: jax.checkpoint(lambda y: jnp.sin(ops.gather(GRAPH, y)))(x) * np.arange(F))
    found = names(flat(lambda x: inner(inner(x))))
    assert not {"jit", "pjit", "remat2", "checkpoint"} & set(found)
    assert found.count("sin") == 2


def step(h: Any, w: Any) -> tuple[Any, Any]:
    return ops.gather(GRAPH, h) * w, h.sum(axis=-1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_scans_with_graph_operators_are_unrolled(length: int, reverse: bool) -> None:
    weights = np.arange(1, length + 1, dtype=np.float32)
    found = flat(lambda x, w: jax.lax.scan(step, x, w, reverse=reverse), X, weights)
    assert gathers(found) == length
    assert "scan" not in names(found)


def test_scans_inside_scans_and_calls_are_unrolled() -> None:
    def outer(h: Any, _: Any) -> tuple[Any, None]:
        return jax.jit(lambda h: jax.lax.scan(step, h, jnp.ones(2))[0])(h), None

    found = flat(lambda x: jax.lax.scan(outer, x, length=2)[0])
    assert gathers(found) == 4
    assert "scan" not in names(found)


def test_other_scans_stay() -> None:
    found = flat(lambda x: ops.gather(GRAPH, jax.lax.scan(lambda h, w: (jnp.tanh(h) * w, None), x, jnp.ones(5))[0]))
    assert names(found).count("scan") == 1
    assert "tanh" not in names(found)


def symbolic(fun: Callable[..., Any], *more: Any) -> ClosedJaxpr:
    spec = jax.ShapeDtypeStruct((new_dimensions().vertices, F), jnp.float32)
    return flatten(make_jaxpr_of(fun, spec, *more), custom=False)


KEYS = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))


def test_scans_that_depend_on_the_place_of_a_row_are_unrolled() -> None:
    def looped(body: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, keys: jax.lax.scan(lambda h, key: (body(h, key), None), x, keys)[0]

    assert "scan" in names(symbolic(looped(lambda h, key: h * jax.random.uniform(key, (F,))), KEYS))
    for body in (
        lambda h, key: h * jax.random.uniform(key, h.shape),
        lambda h, key: h + jnp.arange(h.shape[0])[:, None],
        lambda h, key: h / h.shape[0],
    ):
        assert "scan" not in names(symbolic(looped(body), KEYS))


def test_a_scan_over_rows_is_refused_where_it_would_have_to_be_unrolled() -> None:
    def over_rows(x: Any) -> Any:
        return jax.lax.scan(lambda h, row: (h + row / x.shape[0], None), jnp.zeros(F), x)[0]

    with pytest.raises(SplitError, match="a scan over vertices or edges"):
        symbolic(over_rows)


@jax.custom_jvp
def jvp_gather(x: Any) -> Any:
    return ops.gather(GRAPH, x)


jvp_gather.defjvp(lambda primals, tangents: (jvp_gather(*primals), tangents[0]))


@jax.custom_vjp
def vjp_gather(x: Any) -> Any:
    return ops.gather(GRAPH, x)


vjp_gather.defvjp(lambda x: (vjp_gather(x), None), lambda _, g: (g,))


def line_of(fun: Callable[..., Any]) -> str:
    return f"test_flatten.py:{fun.__code__.co_firstlineno + 1}"


def looping(x: Any) -> Any:
    return jax.lax.while_loop(lambda h: h.sum() < 9, lambda h: ops.gather(GRAPH, h) + 1, x)


def branching(x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda h: ops.gather(GRAPH, h), lambda h: h, x)


def custom_jvp(x: Any) -> Any:
    return jvp_gather(x)


def custom_vjp(x: Any) -> Any:
    return vjp_gather(x)


def hidden(x: Any) -> Any:
    return jax.lax.cond(
        x[0, 0] > 0, lambda h: jax.lax.fori_loop(0, 2, lambda _, y: ops.gather(GRAPH, y), h), jnp.sin, x
    )


@pytest.mark.parametrize(
    ("fun", "word"),
    [
        (looping, "while_loop"),
        (branching, "cond"),
        (custom_jvp, "a function with a custom derivative (jax.custom_jvp)"),
        (custom_vjp, "a function with a custom derivative (jax.custom_vjp)"),
        (hidden, "cond"),
    ],
)
def test_graph_operators_that_cannot_be_seen_are_refused(fun: Callable[..., Any], word: str) -> None:
    with pytest.raises(SplitError) as caught:
        flatten(make_jaxpr_of(fun, X), custom=False)
    assert f"a graph operator inside {word}" in str(caught.value)
    assert line_of(fun) in str(caught.value)


def test_custom_derivatives_stay_until_they_are_not_needed() -> None:
    assert "custom_jvp_call" in names(flat(jax.nn.relu, custom=False))
    assert names(flat(jax.nn.relu, custom=True)) == ["max"]


def library_line(x: Any) -> Any:
    return jax.nn.gelu(jnp.where(x > 0, x, 0))


def test_what_a_library_does_is_written_where_it_is_called() -> None:
    jax.nn.gelu(X)  # the library's function is traced once, from here, and its jaxpr kept
    places = {where_written(equation) for equation in flat(library_line).jaxpr.eqns}
    assert places == {f", at {line_of(library_line)} (library_line)"}


def test_constants_are_kept_once_for_each_call() -> None:
    table = np.arange(V * F, dtype=np.float32).reshape(V, F)
    found = flat(lambda x: jax.jit(lambda y: y + table)(x) + table)
    assert all(const is not None for const in found.consts)
    assert len(found.jaxpr.constvars) == len(found.consts)
    assert not set(found.jaxpr.constvars) & set(found.jaxpr.invars)
