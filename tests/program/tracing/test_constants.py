"""Arrays that a model closes over are inputs, wherever in it they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.program import PASSES, DataSpec, RowSpec, optimise, trace

F = 4
TABLE = np.random.default_rng(0).normal(size=(F, F)).astype(np.float32)
SPEC = DataSpec((RowSpec("vertex", (F,)),), RowSpec("vertex", (), "int32", "labels"))
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

    program = optimise(trace(model, SPEC, params={"w": np.ones((F, F), np.float32)}), passes)
    traced = program.traced
    assert not traced.step.consts
    assert not traced.forward.consts
    roles = [entry.role for entry in traced.inputs]
    assert roles.count("constant") == len(traced.constants) >= 1
    assert len(roles) == len(traced.step.jaxpr.invars) == len(traced.forward.jaxpr.invars)
    assert any(np.shape(value) == TABLE.shape for value in traced.constants)
