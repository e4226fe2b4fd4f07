"""prune: gradients towards features are dropped, with all that leads to them alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo
from support.oracle import assert_same, oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax import ops
from dorylax.program import Program, optimise, trace
from dorylax.program.model.loss import cross_entropy
from dorylax.program.tracing.arguments import RunData, StepResult

prune = functools.partial(optimise, passes=["prune"])

SHAPES = {"a": (zoo.F, 4), "b": (4, zoo.C)}


def model(p: Any, graph: Any, x: Any, weight: Any) -> Any:
    h = jnp.tanh(ops.gather(graph, x, weight) @ p["a"])
    return ops.gather(graph, h @ p["b"], reduce="mean")


CASE = zoo.Case(
    lambda dtype: (model, {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()}), ("x", "weight")
)


@pytest.fixture(scope="module", autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def program() -> Program:
    return trace(zoo.parts_of(CASE, "float64"), zoo.spec_of(CASE, "float64"))


def run(program: Program, data: RunData) -> StepResult:
    parts, rows = zoo.parts_of(CASE, "float64"), {"vertex": zoo.V, "edge": int(data.graph.num_edges)}
    cut = Intervals.of(data.graph, [0, 3, 12, zoo.V])
    executor = ReferenceExecutor(program, data, cut, compile=interpret, rows=rows)
    return executor.step(parts.params, parts.streams, parts.state)


def graph_operators(program: Program, phase: str) -> list[tuple[str, int]]:
    return [
        (str(task.equations[0].primitive), task.level)
        for task in program.tasks
        if task.kind == "graph" and task.phase == phase and "degrees" not in str(task.equations[0].primitive)
    ]


def test_gradients_towards_inputs_vanish(program: Program) -> None:
    roles = [output.role for output in program.traced.outputs]
    assert roles.count("input_gradient") == 2
    pruned = prune(program)
    assert pruned.passes == ("prune",)
    assert [o for o in program.traced.outputs if o.role != "input_gradient"] == list(pruned.traced.outputs)
    assert len(pruned.traced.step.jaxpr.outvars) == len(pruned.traced.outputs)


def test_the_first_layers_backward_gathers_vanish_with_them(program: Program) -> None:
    pruned = prune(program)
    assert graph_operators(pruned, "forward") == graph_operators(program, "forward")
    names = [name for name, _ in graph_operators(program, "backward")]
    assert names == ["dorylax_gather_sum", "dorylax_edge_dot", "dorylax_gather_weighted"]
    assert [name for name, _ in graph_operators(pruned, "backward")] == ["dorylax_gather_sum"]
    assert pruned.cost().epoch.flops < program.cost().epoch.flops
    assert pruned.cost().epoch.shipped_bytes < program.cost().epoch.shipped_bytes


def test_what_is_left_is_the_same(program: Program) -> None:
    data = zoo.data_of(CASE, "float64")
    result = run(prune(program), data)
    assert result.input_gradients == {}
    assert_same(result, oracle(zoo.parts_of(CASE, "float64"), data), "float64")


@pytest.mark.parametrize("passes", [(), ("hoist", "fuse", "rematerialise", "sink", "cut")], ids=["plain", "others"])
def test_without_it_they_are_those_of_jax_grad(program: Program, passes: tuple[str, ...]) -> None:
    data, params = zoo.data_of(CASE, "float64"), zoo.parts_of(CASE, "float64").params

    def loss(x: Any, weight: Any) -> Any:
        rows = cross_entropy(model(params, data.graph, x, weight), jnp.asarray(data.labels))
        return jnp.where(data.weights != 0, rows * data.weights, 0).sum()

    expected = jax.grad(loss, argnums=(0, 1))(*map(jnp.asarray, data.inputs))
    found = run(optimise(program, passes), data).input_gradients
    assert list(found) == ["x", "weight"]
    for name, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-14)


def test_nothing_to_prune_without_a_loss() -> None:
    plain = trace(zoo.parts_of(CASE, "float64"), zoo.spec_of(CASE, "float64"), loss=None)
    assert prune(plain).traced.outputs == plain.traced.outputs
    assert len(prune(plain).traced.step.jaxpr.eqns) == len(plain.traced.step.jaxpr.eqns)
