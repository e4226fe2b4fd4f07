from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dorylax import ops
from dorylax.jax_internals import JaxprEqn, is_key
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.program import trace
from dorylax.program.rows.types import Rows, Summed
from dorylax.program.tasks.analysis import StepAnalysis
from dorylax.program.tracing.spec import DataSpec, RowSpec

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))


def model(params: Any, graph: Any, x: Any, key: Any) -> Any:
    near = ops.gather(graph, jnp.cos(x))  # of data alone
    kernel = jnp.linalg.norm(params["w"]) * params["w"]
    drop = jax.random.bernoulli(jax.random.split(jax.random.fold_in(key, 1))[0], 0.5, (x.shape[0], 2))
    return jnp.tanh(near @ kernel) * drop + jnp.ones((x.shape[0], 1)) * jnp.exp(params["b"])


@pytest.fixture(scope="module")
def analysis() -> StepAnalysis:
    params = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32), "b": jax.ShapeDtypeStruct((), jnp.float32)}
    return StepAnalysis(trace(model, SPEC, params=params).traced)


def first(analysis: StepAnalysis, name: str) -> JaxprEqn:
    return next(equation for equation in analysis.traced.step.jaxpr.eqns if equation.primitive.name == name)


def test_what_depends_on_what(analysis: StepAnalysis) -> None:
    loss, counts, *gradients = analysis.traced.step.jaxpr.outvars
    assert not {loss, counts} & analysis.backward
    assert analysis.backward.issuperset(gradients)
    assert len(gradients) == 3  # of b, w and x
    assert all(var in analysis.weighted for var in (loss, counts, *gradients))
    assert first(analysis, "tanh").outvars[0] not in analysis.weighted
    assert first(analysis, "cos").outvars[0] in analysis.constant
    assert first(analysis, "tanh").outvars[0] not in analysis.constant  # of parameters
    assert not any(var in analysis.constant for var in analysis.traced.variables("param", "epoch", "loss_scale"))
    keys = first(analysis, "random_fold_in").outvars[0]
    assert keys not in analysis.constant  # of the epoch
    assert keys not in analysis.of_rows
    assert first(analysis, "tanh").outvars[0] in analysis.of_rows
    assert not any(var in analysis.of_rows for var in analysis.traced.variables("count", "param"))


def test_what_is_cheap_without_rows_and_what_is_alike_in_all_rows_floats(analysis: StepAnalysis) -> None:
    assert analysis.floats(first(analysis, "exp"))
    assert not analysis.floats(first(analysis, "tanh"))
    assert not any(analysis.floats(e) for e in analysis.traced.step.jaxpr.eqns if is_key(e.outvars[0].aval))
    assert not any(
        analysis.floats(equation) for equation in analysis.traced.step.jaxpr.eqns if is_graph_operator(equation)
    )
    for equation in analysis.traced.step.jaxpr.eqns:
        (kind,) = {type(analysis.types[var]) for var in equation.outvars}
        if kind is Rows and not any(var in analysis.of_rows for var in equation.outvars):
            assert analysis.floats(equation)  # rows that are all alike
        if kind is Summed:
            assert not analysis.floats(equation)
