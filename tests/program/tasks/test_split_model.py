from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dorylax import ops
from dorylax.jax_internals import eval_jaxpr
from dorylax.program.jaxpr.instantiate import instantiate
from dorylax.program.program import Program, trace
from dorylax.program.tracing.spec import DataSpec, RowSpec

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))


@pytest.fixture(scope="module")
def program() -> Program:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, jnp.tanh(x) @ params)

    return trace(model, SPEC, params=jax.ShapeDtypeStruct((3, 2), jnp.float32))


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
