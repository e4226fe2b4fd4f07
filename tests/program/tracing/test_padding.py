"""Padding enters no sum, whatever a custom derivative makes of a cotangent of 0."""

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
from dorylax.program import DataSpec, RowSpec, optimise, trace
from dorylax.program.model import function
from dorylax.program.tracing.arguments import RunData, training_weights

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
        parts = dataclasses.replace(function.take_apart(model, params), params=params)
        labels = rng.integers(0, C, V).astype(np.int32)
        data = RunData(GRAPH, (rng.normal(size=(V, F)),), labels, training_weights(np.ones(V, bool), "float64"))
        expected = oracle(parts, data)
        program = trace(parts, SPEC)
        program = optimise(program) if passes is None else program
        executor = ReferenceExecutor(
            program, data, Intervals.of(GRAPH, [0, 3, 4, 13, V]), compile=interpret, rows={"vertex": V, "edge": E}
        )
        assert_same(executor.step(parts.params, parts.streams, parts.state), expected, "float64")
