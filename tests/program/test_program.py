from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax import ops
from dorylax.jax_internals import eval_jaxpr
from dorylax.program.jaxpr.instantiate import instantiate
from dorylax.program.program import Program, trace
from dorylax.program.tracing.spec import DataSpec, RowSpec

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))
PARAMS = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}


def model(params: Any, graph: Any, x: Any) -> Any:
    return ops.gather(graph, jnp.tanh(x) @ params["w"])


@pytest.fixture(scope="module")
def program() -> Program:
    return trace(model, SPEC, params=PARAMS)


def test_changes_leave_the_program_alone_and_keep_what_is_known(program: Program) -> None:
    analysis = program.analysis
    other = program.with_passes(("hoist",)).with_tasks(program.tasks[:1])
    assert (other.passes, len(other.tasks)) == (("hoist",), 1)
    assert program.passes == ()
    assert other.analysis is analysis
    assert len(other.interfaces) == 1
    assert len(program.interfaces) == len(program.tasks)


def test_function_of_a_task(program: Program) -> None:
    index = next(k for k, task in enumerate(program.tasks) if task.kind == "stage")
    closed = program.function_of(index)
    assert list(closed.jaxpr.invars) == list(program.interfaces[index].reads)
    concrete = instantiate(closed, {"n": 4})
    values = [np.ones(var.aval.shape, var.aval.dtype) for var in concrete.jaxpr.invars]
    results = eval_jaxpr(concrete.jaxpr, concrete.consts, *values)
    assert [result.shape for result in results] == [var.aval.shape for var in concrete.jaxpr.outvars]


def test_sizes_that_are_not_known_must_be_given(program: Program) -> None:
    with pytest.raises(ValueError, match="num_vertices"):
        program.cost()
    graph = messy_graph(8, 14)
    assert program.cost(8, int(graph.num_edges)) is not None
    assert "GA" in program.describe(8, 14)
    assert program.draw().startswith("<")
