from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dorylax import ops
from dorylax.jax_internals import JaxprEqn, is_key
from dorylax.program.rows.types import Free, Rows, Summed
from dorylax.program.tasks.facts import Facts
from dorylax.program.tracing.flatten import is_graph_operator
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.tracing.trace import trace

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))


def model(params: Any, graph: Any, x: Any, key: Any) -> Any:
    near = ops.gather(graph, jnp.cos(x))  # of data alone
    kernel = jnp.linalg.norm(params["w"]) * params["w"]
    drop = jax.random.bernoulli(jax.random.split(jax.random.fold_in(key, 1))[0], 0.5, (x.shape[0], 2))
    return jnp.tanh(near @ kernel) * drop + jnp.ones((x.shape[0], 1)) * jnp.exp(params["b"])


@pytest.fixture(scope="module")
def facts() -> Facts:
    params = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32), "b": jax.ShapeDtypeStruct((), jnp.float32)}
    return Facts(trace(model, SPEC, params=params).traced)


def first(facts: Facts, name: str) -> JaxprEqn:
    return next(equation for equation in facts.traced.step.jaxpr.eqns if equation.primitive.name == name)


def test_types(facts: Facts) -> None:
    assert facts.type_of(first(facts, "tanh").outvars[0]) == Rows("vertex", 0)
    assert facts.type_of(first(facts, "random_fold_in").outvars[0]) == Free()
    loss, *_ = facts.traced.step.jaxpr.outvars
    assert facts.type_of(loss) == Summed()
    literals = [a for equation in facts.traced.step.jaxpr.eqns for a in equation.invars if hasattr(a, "val")]
    assert facts.type_of(literals[0]) is None


def test_what_depends_on_what(facts: Facts) -> None:
    loss, counts, *gradients = facts.traced.step.jaxpr.outvars
    assert not {loss, counts} & facts.backward
    assert facts.backward.issuperset(gradients)
    assert len(gradients) == 3  # of b, w and x
    assert all(var in facts.weighted for var in (loss, counts, *gradients))
    assert first(facts, "tanh").outvars[0] not in facts.weighted
    assert first(facts, "cos").outvars[0] in facts.constant
    assert first(facts, "tanh").outvars[0] not in facts.constant  # of parameters
    assert not any(var in facts.constant for var in facts.traced.variables("param", "epoch", "loss_scale"))
    keys = first(facts, "random_fold_in").outvars[0]
    assert keys not in facts.constant  # of the epoch
    assert keys not in facts.of_rows
    assert first(facts, "tanh").outvars[0] in facts.of_rows
    assert not any(var in facts.of_rows for var in facts.traced.variables("count", "param"))


def test_what_is_cheap_without_rows_and_what_is_alike_in_all_rows_floats(facts: Facts) -> None:
    assert facts.floats(first(facts, "exp"))
    assert not facts.floats(first(facts, "tanh"))
    assert not any(facts.floats(e) for e in facts.traced.step.jaxpr.eqns if is_key(e.outvars[0].aval))
    assert not any(facts.floats(equation) for equation in facts.traced.step.jaxpr.eqns if is_graph_operator(equation))
    for equation in facts.traced.step.jaxpr.eqns:
        (kind,) = {type(facts.types[var]) for var in equation.outvars}
        if kind is Rows and not any(var in facts.of_rows for var in equation.outvars):
            assert facts.floats(equation)  # rows that are all alike
        if kind is Summed:
            assert not facts.floats(equation)


def test_order(facts: Facts) -> None:
    equations = facts.traced.step.jaxpr.eqns
    assert [facts.order[id(equation)] for equation in equations] == list(range(len(equations)))
