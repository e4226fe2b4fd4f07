"""A new operator is one record: a model that uses it is split, priced, named and trained by a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.pipelines import OfFunction, Trained, farthest, messy_data, named

from dorylax.ops import segment
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.operator import OPERATORS, OperandSpec, Operator, ResultSpec, per_entry
from dorylax.ops.primitives.structure import structure_of
from dorylax.ops.row_loops.rows import RowRange
from dorylax.ops.row_operators import run
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.program import DataSpec, optimise, trace
from dorylax.program.model.flax_nnx import take_apart
from dorylax.trainer import Trainer

EPOCHS = 3
PER_ENTRY = 2  # operations per entry: absolute value, sum


# The operator: y[v] = Σ over in-neighbours u of |x[u]|.


def _lower(x: Any, structure: Any) -> Any:
    return segment.reduce_entries(jnp.abs(x)[structure.in_neighbours], structure.in_offsets, "sum")


def _rows(loops: Any, _params: Any, operands: Any, rows: Any, results: Any) -> None:
    loops.reduce("sum", np.abs(operands[0]), rows, rows.neighbours, results[0])


@pytest.fixture
def gather_magnitudes() -> Iterator[Operator]:
    operator = Operator(
        "gather_magnitudes",
        [OperandSpec("neighbour")],
        [ResultSpec()],
        label="GA",
        flops=per_entry(PER_ENTRY),
        lower=_lower,
        compute_rows=_rows,
    )

    def jvp(dense: list[Any], tangents: list[Any], structure: Any) -> Any:
        (x,), (t,) = dense, tangents
        return operator(x, structure), gather_sum(jnp.sign(x) * t, structure, direction="in")

    operator.def_jvp(jvp)
    operator.def_batching("width")
    yield operator
    del OPERATORS[operator.primitive.name]


def model_with(operator: Operator, data: Any) -> OfFunction:
    def model(params: Any, graph: Any, x: Any) -> Any:
        h = operator((x @ params["enter"])[:, None], structure_of(graph, edge_ids=False))[:, 0]
        return jnp.tanh(h) @ params["leave"]

    rng = np.random.default_rng(0)
    shapes = {"enter": (data.num_features, 4), "leave": (4, data.num_classes)}
    return OfFunction(model, {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})


def test_two_operators_of_one_name_are_refused(gather_magnitudes: Operator) -> None:
    with pytest.raises(ValueError, match="already a graph operator named 'gather_magnitudes'"):
        Operator("gather_magnitudes", [], [ResultSpec()], label="GA", flops=per_entry(1), lower=_lower)


def test_it_runs_on_rows(gather_magnitudes: Operator) -> None:
    rows = RowRange(np.array([0, 2, 2]), np.array([1, 0], np.int32))
    (y,) = run("dorylax_gather_magnitudes", {}, [np.array([[[-3.0]], [[2.0]]], np.float32)], rows)
    np.testing.assert_array_equal(y, [[[5.0]], [[0.0]]])


def test_it_is_split_priced_and_named(gather_magnitudes: Operator) -> None:
    data = messy_data()
    program = optimise(trace(model_with(gather_magnitudes, data), DataSpec.of(data)))
    forward, backward = (task for task in program.tasks if task.kind == "graph")
    assert forward.equations[0].primitive is gather_magnitudes.primitive
    assert backward.equations[0].primitive is gather_sum.primitive
    entries, width = data.graph.num_edges, 4
    cost = program.cost().tasks[program.tasks.index(forward)]
    assert cost.flops == PER_ENTRY * entries * width
    assert cost.gathered_bytes == entries * (4 * width + 4)
    (line,) = (line for line in program.describe().splitlines() if "gather_magnitudes" in line)
    assert line.split()[1] == "GA"
    assert "gather_magnitudes" in program.draw()


def test_a_pipeline_of_two_intervals_trains_with_it(gather_magnitudes: Operator) -> None:
    data = messy_data()
    model = model_with(gather_magnitudes, data)
    parts = take_apart(model)
    pipeline = Pipeline.of(parts, data, optax.adam(0.01), PipelineConfig(intervals=2), seed=0)
    pipeline_run = pipeline.start(parts.params, None, parts.state)
    try:
        pipeline_run.barrier(EPOCHS)
        records = [pipeline_run.run_epoch() for _ in range(EPOCHS)]
    finally:
        pipeline_run.close()
    alone = Trainer(model, data, optimizer=optax.adam(0.01), epochs=EPOCHS, seed=0, eval_every=EPOCHS, optimize=False)
    result = alone.fit()
    found = Trained([record.loss for record in records], named(records[-1].params))
    assert farthest(found, Trained([record.loss for record in result.history], named(result.last_params))) <= 1e-5
