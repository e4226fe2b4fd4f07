"""Rows are stored in bfloat16 where they are summed over neighbours, and nowhere else."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax import ops
from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program.single.fold import fold
from dorylax.program.single.narrow import narrow
from dorylax.program.tracing.flatten import flatten

V, F = 20, 5
GRAPH = messy_graph(V)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(V, F)).astype(np.float32)
ROUNDED = np.asarray(jnp.asarray(X, jnp.bfloat16), np.float32)


def flat(fun: Any, *given: Any) -> ClosedJaxpr:
    return fold(flatten(make_jaxpr_of(fun, *given), custom=True))


def run(closed: ClosedJaxpr, *given: Any) -> list[Any]:
    return jax.jit(lambda *given: eval_jaxpr(closed.jaxpr, closed.consts, *given))(*given)


def gathered(closed: ClosedJaxpr) -> list[tuple[str, Any, Any]]:
    """Of each operator of the graph that reads rows: its name, and the dtypes of rows and results."""
    found = [equation for equation in closed.jaxpr.eqns if equation.primitive.name.startswith("dorylax_gather")]
    return [(eqn.primitive.name[8:], eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype) for eqn in found]


def normalised(x: Any) -> Any:
    return 0.5 * (ops.gather(GRAPH, x) + 1.25 * x)


@pytest.mark.parametrize("model", [lambda x: ops.gather(GRAPH, x), normalised], ids=["sum", "normalised"])
def test_it_sums_rounded_rows_in_float32(model: Any) -> None:
    after = narrow(flat(model, X))
    assert gathered(after) == [("gather_scaled", jnp.bfloat16, jnp.float32)]
    (got,) = run(after, X)
    np.testing.assert_allclose(got, model(ROUNDED), rtol=1e-5, atol=1e-6)
    assert not np.allclose(got, model(X), rtol=1e-4, atol=1e-6)


def test_the_gradient_too() -> None:
    after = narrow(flat(jax.grad(lambda x: (normalised(x) ** 2).sum()), X))
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
    closed = flat(model, X)
    after = narrow(closed)
    assert gathered(after) == gathered(closed)
    np.testing.assert_array_equal(run(after, X)[0], run(closed, X)[0])


def test_float64_stays() -> None:
    with jax.enable_x64(True):
        wide = X.astype(np.float64)
        assert gathered(narrow(flat(normalised, wide))) == [("gather_scaled", jnp.float64, jnp.float64)]
