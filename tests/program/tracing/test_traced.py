from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dorylax import ops
from dorylax.program.program import trace
from dorylax.program.rows.types import Free, GraphArray, Rows
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.tracing.traced import Input


@pytest.mark.parametrize(
    ("entry", "row_type", "of_data"),
    [
        (Input("param", "w"), Free(), False),
        (Input("seed", "seed"), Free(), False),
        (Input("loss_scale", "loss_scale"), Free(), False),
        (Input("constant", "constant 0"), Free(), True),
        (Input("count", "edges", "edge"), Free(), True),  # a number, though one of edges
        (Input("graph", "in_offsets"), GraphArray(), True),
        (Input("ids", "edge ids", "edge"), Rows("edge", 0), True),
        (Input("weights", "weights", "vertex"), Rows("vertex", 0), True),
    ],
)
def test_inputs_by_role(entry: Input, row_type: Any, of_data: bool) -> None:
    assert (entry.row_type, entry.of_data) == (row_type, of_data)


def test_a_traced_model() -> None:
    spec = DataSpec((RowSpec("vertex", (3,)),), RowSpec("vertex", (), "int32", "labels"))
    params = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}

    def model(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, x @ params["w"])

    traced = trace(model, spec, params=params).traced
    assert traced.name == "model"
    assert traced.trains
    assert not trace(model, spec, params=params, loss=None).traced.trains
    (w,) = traced.variables("param")
    assert w.aval.shape == (3, 2)
    assert [var.aval.shape for var in traced.variables("rows", "weights")] == [
        (traced.dimensions.vertices, 3),
        (traced.dimensions.vertices,),
    ]
    assert len(traced.inputs) == len(traced.step.jaxpr.invars) == len(traced.forward.jaxpr.invars)
    assert len(traced.outputs) == len(traced.step.jaxpr.outvars)
    assert traced.outputs[: len(traced.forward_outputs)] == traced.forward_outputs
