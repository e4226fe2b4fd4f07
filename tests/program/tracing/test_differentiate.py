from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.graphs import messy_graph

from dorylax import ops
from dorylax.jax_internals import eval_jaxpr
from dorylax.program.jaxpr.instantiate import instantiate
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


def test_the_cotangent_of_the_loss_is_an_input() -> None:
    found = traced()
    graph = messy_graph(8, 14)
    step = instantiate(found.step, {"n": 8, "e": 14})
    assert not {"custom_jvp_call", "pjit", "jit"} & {equation.primitive.name for equation in step.jaxpr.eqns}
    rng = np.random.default_rng(0)
    x, w, labels = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 3), (3, 2), (8, 2)))
    weights, ids = np.full(8, 1 / 8, np.float32), np.arange(8, dtype=np.int32)
    incoming, outgoing = graph.incoming, graph.outgoing
    halves = [np.ascontiguousarray(a.offsets).view(np.uint32).reshape(-1, 2) for a in (incoming, outgoing)]
    given = {
        "w": w,
        "x": x,
        "ids": ids,
        "labels": labels,
        "weights": weights,
        "loss_scale": np.float32(3),
        "in_offsets": halves[0],
        "in_neighbours": incoming.neighbours,
        "out_offsets": halves[1],
        "out_neighbours": outgoing.neighbours,
        "out_edges": outgoing.edges,
        "vertex ids": ids,
        "edge ids": np.arange(14, dtype=np.int32),
        "real vertices": np.ones(8, bool),
        "real edges": np.ones(14, bool),
    }
    values = [given.get(entry.name, np.int32(0)) for entry in found.inputs]
    loss, *gradients = eval_jaxpr(step.jaxpr, step.consts, *values)

    def loss_of(w: Any, x: Any) -> Any:
        return squared(model({"w": w}, graph, x, ids), labels).mean()

    expected, slopes = jax.value_and_grad(loss_of, (0, 1))(w, x)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)  # the loss itself is not scaled
    for gradient, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(gradient, 3 * slope, rtol=1e-4, atol=1e-6)
