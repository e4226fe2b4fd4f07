from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.graphs import messy_graph

from dorylax import ops
from dorylax.program.program import Program, trace
from dorylax.program.tracing.spec import DataSpec, RowSpec

SPEC = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))
PARAMS = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}


def model(params: Any, graph: Any, x: Any) -> Any:
    return ops.gather(graph, jnp.tanh(x) @ params["w"])


@pytest.fixture(scope="module")
def program() -> Program:
    return trace(model, SPEC, params=PARAMS)


def test_sizes_that_are_not_known_must_be_given(program: Program) -> None:
    with pytest.raises(ValueError, match="num_vertices"):
        program.cost()
    graph = messy_graph(8, 14)
    assert program.cost(8, int(graph.num_edges)) is not None
    assert "GA" in program.describe(8, 14)
    assert program.draw().startswith("<")
