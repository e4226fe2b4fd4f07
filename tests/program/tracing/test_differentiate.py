from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dorylax import ops
from dorylax.program.program import trace
from dorylax.program.tracing.differentiate import differentiate
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.tracing.traced import Output, Traced

SPEC = DataSpec(
    (RowSpec("vertex", (3,)), RowSpec("vertex", (), "int32", "ids")), RowSpec("vertex", (2,), name="labels")
)


def model(params: Any, graph: Any, x: Any, ids: Any) -> Any:
    return ops.gather(graph, jax.nn.relu(x @ params["w"])) + ids[:, None]


def squared(output: Any, labels: Any) -> Any:
    return ((output - labels) ** 2).sum(axis=-1)


def traced() -> Traced:
    params = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}
    return trace(model, SPEC, params=params, loss=squared, metrics=None).traced


def test_gradients_of_parameters_and_of_rows_of_real_numbers() -> None:
    found = traced()
    given = found.forward, found.inputs, found.constants, found.forward_outputs
    step, *_, outputs = differentiate(*given, input_gradients=True)[1:]
    assert outputs == (Output("loss", "loss"), Output("gradient", "w"), Output("input_gradient", "x"))
    assert [atom.aval.shape[1:] for atom in step.jaxpr.outvars] == [(), (2,), (3,)]
    outputs = differentiate(*given, input_gradients=False).outputs
    assert outputs == (Output("loss", "loss"), Output("gradient", "w"))
