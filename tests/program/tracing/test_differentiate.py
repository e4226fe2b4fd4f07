"""Closed-over arrays are inputs, reshaped values are stored once, and padding enters no sum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph
from support.oracle import assert_same, oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax import ops
from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program import PASSES, DataSpec, RowSpec, optimise, trace
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.jaxpr.rewrite import simplify
from dorylax.program.model.kinds import take_apart
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.differentiate import share_reshapes
from dorylax.program.tracing.flatten import flatten

WIDTH = 4
TABLE = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)
OF_CONSTANTS = DataSpec((RowSpec("vertex", (WIDTH,)),), RowSpec("vertex", (), "int32", "labels"))
scaled = jax.custom_vjp(lambda x: x)
scaled.defvjp(lambda x: (x, None), lambda _, g: (g @ jnp.asarray(TABLE),))

MODELS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda h: h @ TABLE,
    "in jit": jax.jit(lambda h: h @ TABLE),
    "in remat": jax.checkpoint(jax.jit(lambda h: jnp.tanh(h @ TABLE))),
    "twice": lambda h: jax.jit(lambda h: h @ TABLE)(jnp.tanh(h @ TABLE)),
    "in a backward rule": scaled,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("passes", [(), PASSES], ids=["no pass", "all passes"])
def test_constants_become_inputs(name: str, passes: tuple[str, ...]) -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, MODELS[name](x @ params["w"]))

    program = optimise(trace(model, OF_CONSTANTS, params={"w": np.ones((WIDTH, WIDTH), np.float32)}), passes)
    traced = program.traced
    assert not traced.step.consts
    assert not traced.forward.consts
    roles = [entry.role for entry in traced.inputs]
    assert roles.count("constant") == len(traced.constants) >= 1
    assert len(roles) == len(traced.step.jaxpr.invars) == len(traced.forward.jaxpr.invars)
    assert any(np.shape(value) == TABLE.shape for value in traced.constants)


SMALL = messy_graph(8, 14)
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def shared(fun: Any) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    before = simplify(flatten(make_jaxpr_of(fun, X), custom=True))
    after = share_reshapes(before)
    for a, b in zip(*(eval_jaxpr(one.jaxpr, one.consts, X) for one in (after, before)), strict=True):
        np.testing.assert_array_equal(a, b)
    return before, after


def test_other_readers_read_the_operand() -> None:
    def fun(x: Any) -> Any:
        h = jnp.tanh(x)
        return ops.gather(SMALL, h) + h, h

    before, after = shared(fun)
    (operator,) = filter(is_graph_operator, after.jaxpr.eqns)
    operand = operator.invars[0]
    (tanh,) = (equation for equation in after.jaxpr.eqns if equation.primitive.name == "tanh")
    readers = [equation.primitive.name for equation in after.jaxpr.eqns if tanh.outvars[0] in equation.invars]
    assert readers == ["reshape"]  # what is computed is read only to make the operand
    assert after.jaxpr.outvars[1] not in tanh.outvars
    back = [e for e in after.jaxpr.eqns if operand in e.invars and not is_graph_operator(e)]
    assert [e.primitive.name for e in back] == ["reshape"]
    assert back[0].outvars[0].aval == tanh.outvars[0].aval
    assert len(after.jaxpr.eqns) == len(before.jaxpr.eqns) + 1


def test_what_only_the_operator_reads_stays() -> None:
    before, after = shared(lambda x: ops.gather(SMALL, jnp.tanh(x)))
    assert [e.primitive.name for e in after.jaxpr.eqns] == [e.primitive.name for e in before.jaxpr.eqns]


def test_inputs_stay_inputs() -> None:
    before, after = shared(lambda x: ops.gather(SMALL, x) + x)
    assert len(after.jaxpr.eqns) == len(before.jaxpr.eqns)


V, E, F, C = 20, 50, 4, 3
GRAPH = messy_graph(V, E)
SPEC = DataSpec((RowSpec("vertex", (F,), "float64"),), RowSpec("vertex", (), "int32", "labels"))


def with_backward(rule: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The identity, with a derivative of its own."""
    identity = jax.custom_vjp(lambda x: x)
    identity.defvjp(lambda x: (x, x), lambda x, g: (rule(x, g),))
    return identity


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "regularised": lambda x, g: g + 0.1 * x,
    "of the activity alone": lambda x, g: 0.1 * x,
    "sign": lambda x, g: jnp.where(g >= 0, 1.0, -1.0),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("passes", [(), None], ids=["no pass", "all passes"])
def test_custom_derivatives(rule: str, passes: tuple[()] | None) -> None:
    own = with_backward(RULES[rule])

    def model(params: Any, graph: Any, x: Any) -> Any:
        return jnp.tanh(ops.gather(graph, own(x @ params["w"]))) @ params["v"] + x[:, :C]

    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        params = {"w": jnp.asarray(rng.normal(size=(F, F))), "v": jnp.asarray(rng.normal(size=(F, C)))}
        parts = dataclasses.replace(take_apart(model, None, params=params), params=params)
        labels = rng.integers(0, C, V).astype(np.int32)
        data = RunData(GRAPH, (rng.normal(size=(V, F)),), labels, training_weights(np.ones(V, bool), "float64"))
        expected = oracle(parts, data)
        program = trace(parts, SPEC)
        program = optimise(program) if passes is None else program
        executor = ReferenceExecutor(
            program, data, Intervals.of(GRAPH, [0, 3, 4, 13, V]), compile=interpret, rows={"vertex": V, "edge": E}
        )
        assert_same(executor.step(parts.params, parts.streams, parts.state), expected, "float64")
