"""How a step is cut: levels, what floats, what runs once, and what never crosses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.jax_internals import is_key
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import Program, trace
from dorylax.program.tasks.task import Task
from dorylax.program.tracing.spec import DataSpec, RowSpec

SPEC = DataSpec(
    (RowSpec("vertex", (3,)), RowSpec("edge", (2,), name="edges")),
    RowSpec("vertex", (), "int32", "labels"),
    num_vertices=100,
    num_edges=500,
)
PARAMS = {name: np.ones(shape, np.float32) for name, shape in {"a": (3, 2), "b": (2, 2), "c": (2, 2)}.items()}


def model(params: Any, graph: Any, x: Any, edges: Any, key: Any) -> Any:
    near = ops.gather(graph, jnp.sin(x))  # of data alone
    keys = jax.random.split(key)
    h = jnp.tanh(near @ params["a"])
    h = h * jax.random.bernoulli(keys[0], 0.5, h.shape)
    messages = jnp.tanh(ops.scatter_src(graph, h) @ params["b"]) * edges
    h = ops.gather_edges(graph, messages) + h
    return (h * jax.random.bernoulli(keys[1], 0.5, h.shape)) @ params["c"] + jnp.ones((x.shape[0], 1))


def passes_of(*, hoist: bool = False, fuse: bool = False) -> tuple[str, ...]:
    return ("hoist",) * hoist + ("fuse",) * fuse


@pytest.fixture(scope="module")
def plain() -> Program:
    return trace(model, SPEC, params=PARAMS)


def every(program: Program) -> list[Program]:
    again = [Program.of(program.traced, passes_of(hoist=hoist, fuse=fuse)) for hoist in (0, 1) for fuse in (0, 1)]
    return [*again, optimise(program), optimise(program, ["cut"])]


def names(task: Task) -> set[str]:
    return {equation.primitive.name for equation in task.equations}


def test_tasks_can_run_in_order(plain: Program) -> None:
    for program in every(plain):
        known = set(program.traced.step.jaxpr.invars)
        for task, interface in zip(program.tasks, program.interfaces, strict=True):
            assert known.issuperset(interface.reads)
            known.update(interface.writes)
            assert task.when == "epoch" or not {"tanh", "random_bits", "threefry2x32"} & names(task)
        assert known.issuperset(atom for atom in program.traced.step.jaxpr.outvars if not hasattr(atom, "val"))


def test_a_graph_task_is_one_graph_operator(plain: Program) -> None:
    for program in every(plain):
        for task in program.tasks:
            found = sum(map(is_graph_operator, task.equations))
            assert (found, len(task.equations)) == (1, 1) if task.kind == "graph" else found == 0


def test_keys_stay_with_the_driver(plain: Program) -> None:
    for program in every(plain):
        for task, interface in zip(program.tasks, program.interfaces, strict=True):
            if task.kind == "stage":
                assert not any(is_key(var.aval) for var in (*interface.reads, *interface.writes))


def test_a_key_for_each_row_is_refused() -> None:
    def keyed(params: Any, graph: Any, x: Any, key: Any) -> Any:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ops.vertex_ids(graph))
        return ops.gather(graph, x @ params["a"] + jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys))

    spec = DataSpec(SPEC.inputs[:1], SPEC.labels)
    with pytest.raises(SplitError, match=r"a random key for each vertex \[.*keyed.*\].*from one key"):
        trace(keyed, spec, params={"a": PARAMS["a"]})


def test_levels_count_graph_operators_on_the_way(plain: Program) -> None:
    graph = [(task.level, next(iter(names(task)))) for task in plain.tasks if task.kind == "graph"]
    forward = [level for (level, _), task in zip(graph, _graph(plain), strict=True) if task.phase == "forward"]
    assert forward == [0, 1, 2]
    # One stage for each space and level of the forward pass: level 0 (sin), 1 (tanh), 2 (edges), 3 (loss).
    stages = [(t.level, t.space) for t in plain.tasks if t.kind == "stage" and t.phase == "forward"]
    assert len(stages) == len(set(stages))
    assert {(0, "vertex"), (1, "vertex"), (2, "edge"), (3, "vertex")} <= set(stages)
    assert [task.level for task in plain.tasks if task.kind != "driver"] == sorted(
        task.level for task in plain.tasks if task.kind != "driver"
    )


def _graph(program: Program) -> list[Task]:
    return [task for task in program.tasks if task.kind == "graph"]


def test_what_floats_is_copied_into_every_task_that_reads_it(plain: Program) -> None:
    analysis = plain.analysis
    for task, interface in zip(plain.tasks, plain.interfaces, strict=True):
        if task.kind != "stage":
            continue
        makers = {var: e for e in plain.traced.step.jaxpr.eqns for var in e.outvars}
        assert not any(var in makers and analysis.floats(makers[var]) for var in interface.reads)


def test_rows_that_are_all_alike_are_made_for_graph_operators() -> None:
    def counting(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, jnp.ones((x.shape[0], 2))) * params["b"][0] + x[:, :2]

    program = trace(counting, DataSpec(SPEC.inputs[:1], SPEC.labels), params={"b": PARAMS["b"]})
    first = next(k for k, task in enumerate(program.tasks) if task.kind == "graph")
    assert any(program.tasks[k].kind == "stage" and program.interfaces[k].writes for k in range(first))


@pytest.mark.parametrize("unused", [np.float32(3), np.ones(2, np.float32), np.ones((2, 3), np.float32)])
@pytest.mark.parametrize("passes", [(), PASSES], ids=["plain", "optimised"])
def test_parameters_that_nobody_uses_have_gradients_too(unused: Any, passes: tuple[str, ...]) -> None:
    def using_one(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, x @ params["a"])

    program = trace(using_one, DataSpec(SPEC.inputs[:1], SPEC.labels), params={"a": PARAMS["a"], "unused": unused})
    gradients = [output.name for output in optimise(program, passes).traced.outputs if output.role == "gradient"]
    assert gradients == ["a", "unused"]
