"""A program as one function: the same numbers, what was hoisted outside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph
from support.oracle import assert_same, oracle

from dorylax import ops
from dorylax.jax_internals import make_jaxpr_of
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.model.base import epoch_rng
from dorylax.program.model.kinds import take_apart
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.spec import DataSpec, RowSpec

V, E = 12, 20
GRAPH = messy_graph(V, E)
RNG = np.random.default_rng(0)
SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"), num_vertices=V, num_edges=E)
DATA = RunData(
    GRAPH,
    (RNG.normal(size=(V, 3)).astype(np.float32),),
    RNG.integers(0, 2, V).astype(np.int32),
    training_weights(np.arange(V) % 3 > 0),
)
PARAMS = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in {"a": (3, 4), "b": (4, 2)}.items()}


def model(params: Any, graph: Any, x: Any, key: Any) -> Any:
    h = jnp.tanh(ops.gather(graph, x) @ params["a"])
    h = h * jax.random.bernoulli(key, 0.5, h.shape)
    return ops.gather(graph, h @ params["b"]) + h @ params["b"]


PARTS = take_apart(model, GRAPH, *DATA.inputs, params=PARAMS)


def program_of(optimised: bool, **options: Any) -> Program:
    program = trace(model, SPEC, params=PARAMS, **options)
    return optimise(program) if optimised else program


@pytest.mark.parametrize("optimised", [False, True], ids=["plain", "optimised"])
def test_prepare_and_step_are_the_oracle(optimised: bool) -> None:
    function = program_of(optimised).as_function(V, E)
    kept = jax.jit(function.prepare)(DATA)
    step = jax.jit(function.step)
    results = [
        step(kept, DATA, PARAMS, PARTS.streams, {}, seed=np.uint32(3), epoch=np.uint32(epoch)) for epoch in (4, 5)
    ]
    for epoch, result in zip((4, 5), results, strict=True):
        assert_same(result, oracle(PARTS, DATA, seed=3, epoch=epoch), "float32")
    assert float(results[0].loss) != float(results[1].loss)


def operators(fun: Any, *arguments: Any) -> int:
    return sum(map(is_graph_operator, make_jaxpr_of(fun, *arguments).jaxpr.eqns))


@pytest.mark.parametrize(("optimised", "before", "within"), [(False, 0, 4), (True, 1, 2)])
def test_what_was_hoisted_is_outside(optimised: bool, before: int, within: int) -> None:
    """Two gathers forward and two backward, of which the first runs once and the last is of no use."""
    function = program_of(optimised).as_function(V, E)
    kept = function.prepare(DATA)
    assert (len(kept) > 0) == (before > 0)

    def step(params: Any, kept: Any) -> Any:
        return function.step(kept, DATA, params, PARTS.streams, {}, seed=0, epoch=0)

    assert operators(function.prepare, DATA) == before
    assert operators(step, PARAMS, kept) == within


def test_a_program_without_a_loss_gives_the_model_output() -> None:
    function = program_of(True, loss=None).as_function(V, E)
    output = function.output(function.prepare(DATA), DATA, PARAMS, PARTS.streams, {})
    # Seed and epoch are 0 where nothing is trained.
    streams = epoch_rng(PARTS.streams, 0, 0)
    expected = PARTS.structure.apply_evaluate(PARAMS, streams, {}, GRAPH, *DATA.inputs)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
