from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax import ops
from dorylax.graph.reorder import reorder
from dorylax.program.model.base import ModelParts
from dorylax.program.program import trace
from dorylax.program.tracing.arguments import RunData, data_values, training_weights, unpack
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.tracing.traced import Traced

V, E = 8, 14
GRAPH = messy_graph(V, E)
SPEC = DataSpec(
    (RowSpec("vertex", (3,), name="features"), RowSpec("edge", (2,), name="edges")),
    RowSpec("vertex", (), "int32", "labels"),
)
X, EDGES, LABELS = (
    np.ones((V, 3), np.float32),
    np.arange(2.0 * E, dtype=np.float32).reshape(E, 2),
    np.zeros(V, np.int32),
)
DATA = RunData(GRAPH, (X, EDGES), LABELS, training_weights(np.arange(V) < 4))
PARAMS: dict[str, Any] = {"b": [np.ones(2, np.float32)], "a": {"x": np.ones((3, 2), np.float32), "y": np.ones((2,))}}
OFFSET = np.arange(2, dtype=np.float32)


def model(params: Any, graph: Any, x: Any, edges: Any) -> Any:
    return ops.gather_edges(graph, edges * params["a"]["y"]) + (x @ params["a"]["x"]) * params["b"][0] + OFFSET


@pytest.fixture(scope="module")
def traced() -> Traced:
    return trace(model, SPEC, params=PARAMS).traced


def test_weights_are_a_mean() -> None:
    weights = training_weights(np.array([True, False, True, True, True]))
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights, np.float32([0.25, 0, 0.25, 0.25, 0.25]))
    assert training_weights([1, 0], np.float64).dtype == np.float64


def test_data_by_position(traced: Traced) -> None:
    values = data_values(traced, DATA)
    found = {traced.inputs[k].name: value for k, value in values.items()}
    assert set(values) == {k for k, entry in enumerate(traced.inputs) if entry.of_data}
    assert found["features"] is X
    order = np.asarray(GRAPH.edge_order)
    np.testing.assert_array_equal(found["edges"], EDGES[order])
    np.testing.assert_array_equal(found["edge ids"], order)
    np.testing.assert_array_equal(found["edge places"], order)
    assert found["labels"] is LABELS
    np.testing.assert_array_equal(found["constant 0"], OFFSET)
    np.testing.assert_array_equal(found["vertex ids"], np.arange(V))
    moved = np.arange(V)[::-1]
    again = {traced.inputs[k].name: v for k, v in data_values(traced, _with(graph=reorder(GRAPH, moved))).items()}
    np.testing.assert_array_equal(again["vertex ids"], moved)
    np.testing.assert_array_equal(again["edges"], EDGES[again["edge places"]])
    assert sorted(np.asarray(again["edge ids"])) == list(range(E))
    assert not np.array_equal(again["edge ids"], order)


def _with(**changes: Any) -> RunData:
    return dataclasses.replace(DATA, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": (X[:-1], EDGES)}, "features must be float32 [8, 3], as the model was traced, got float32 [7, 3]"),
        ({"inputs": (X[:, :2], EDGES)}, "features must be float32 [8, 3], as the model was traced, got float32 [8, 2]"),
        ({"inputs": (X, EDGES[:V])}, "edges must be float32 [14, 2], as the model was traced, got float32 [8, 2]"),
        (
            {"inputs": (X.astype(jnp.bfloat16), EDGES)},
            "features must be float32 [8, 3], as the model was traced, got bf",
        ),
        ({"inputs": (X,)}, "input edges is missing"),
        ({"inputs": (X, EDGES, X)}, "inputs"),
        ({"labels": LABELS[:, None]}, "labels must be int32 [8], as the model was traced, got int32 [8, 1]"),
        ({"labels": LABELS.astype(np.float32)}, "labels must be int32 [8], as the model was traced, got float32 [8]"),
        ({"weights": DATA.weights[1:]}, "weights must be float32 [8], as the model was traced, got float32 [7]"),
        ({"weights": DATA.weights > 0}, "weights must be float32 [8], as the model was traced, got bool [8]"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:14],
)
def test_data_that_do_not_fit_are_refused(traced: Traced, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        data_values(traced, _with(**changes))


def test_state_that_does_not_change_is_the_old() -> None:
    class Counting:
        def apply_train(self, params: Any, streams: Any, state: Any, graph: Any, x: Any) -> Any:
            return x @ params["w"] + state["offset"], {"calls": state["calls"] + 1, "offset": state["offset"]}

    state = {"calls": np.int32(4), "offset": np.float32(0.5)}
    parts = ModelParts("Counting", Counting(), {"w": np.ones((3, 2), np.float32)}, {}, state)
    traced = trace(parts, DataSpec(SPEC.inputs[:1], SPEC.labels)).traced
    assert [output.name for output in traced.outputs if output.role == "state"] == ["calls"]
    values = [output.name for output in traced.outputs]
    assert unpack(traced, values, state).state == {"calls": "calls", "offset": np.float32(0.5)}


def test_paths_of_parameters_may_look_alike() -> None:
    """`{"a": {"b": …}}` and `{"a/b": …}` have one path and are two parameters."""
    params = {"a": {"b": np.ones((3, 2), np.float32)}, "a/b": np.ones((3, 2), np.float32)}
    program = trace(
        lambda p, g, x: ops.gather(g, x @ p["a"]["b"]) + x @ p["a/b"],
        DataSpec(SPEC.inputs[:1], SPEC.labels),
        params=params,
    )
    result = unpack(program.traced, list(range(len(program.traced.outputs))), {})
    assert result.gradients["a"]["b"] != result.gradients["a/b"]


def test_inputs_of_one_name_are_two_inputs() -> None:
    """As they are when no names are given."""
    spec = DataSpec((RowSpec("vertex", (3,)), RowSpec("edge", (2,))), SPEC.labels)
    traced = trace(model, spec, params=PARAMS).traced
    result = unpack(traced, list(range(len(traced.outputs))), {})
    assert len(result.input_gradients) == 2
