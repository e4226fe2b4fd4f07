"""How far a model in pieces is from the model in one piece, under `jax.value_and_grad`: in one step, and in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.program import optimise, trace
from dorylax.program.model.base import ModelParts, epoch_rng
from dorylax.program.model.kinds import take_apart
from dorylax.program.program import Program
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.spec import DataSpec
from support.graphs import messy_graph
from support.oracle import widened
from support.outside.case import LABELS, SPACES, C, F, Outside, drawn
from support.reference import Intervals, ReferenceExecutor, interpret

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
CUTS = {1: (0, 20), 3: (0, 1, 12, 20), 7: (0, 1, 2, 7, 8, 11, 19, 20)}
"""Numbers of intervals of `small_graph`, and where they are cut."""
SEED, EPOCH = 3, 4


@dataclasses.dataclass(frozen=True)
class Step:
    """Loss, gradients (or how far training has moved parameters) and the model's other state."""

    loss: Any
    gradients: Any
    state: Any


def tolerance(case: Outside, dtype: str) -> float:
    """How far is as near as rounding allows."""
    return max(TOLERANCE[dtype], 2 * case.rounding)


def small_graph() -> Graph:
    """20 vertices, 50 edges, and all that goes wrong."""
    return messy_graph(20)


def data_of(case: Outside, graph: Graph, dtype: str) -> Dataset:
    """Random rows and labels; about half the vertices train."""
    rng = np.random.default_rng(5)
    count = int(graph.num_vertices)
    rows = {"vertex": count, "edge": int(graph.num_edges)}
    reals: dict[str, Any] = {"features": rng.normal(size=(count, F)).astype(dtype)}
    further: dict[str, dict[str, Any]] = {"vertex": {}, "edge": {}}
    for name in case.inputs:
        space, shape, holds = SPACES[name]
        values = drawn(holds, (rows[space], *shape), rng)
        further[space][name] = values.astype(dtype) if values.dtype == np.float64 else values
    shape, holds = LABELS[case.labels]
    labels = drawn(holds, (count, *shape), rng)
    mask = labels >= 0 if case.labels == "classes" else rng.random(count) < 0.5
    data = Dataset(
        "outside",
        graph,
        reals["features"],
        labels,
        C if case.labels in ("classes", "indicators") else None,
        mask,
        vertex_inputs=further["vertex"],
        edge_inputs=further["edge"],
    )
    reals |= {"vertex_inputs": further["vertex"], "edge_inputs": further["edge"]}
    for field, value in reals.items():  # `Dataset` itself makes floating arrays float32
        object.__setattr__(data, field, value)
    return data


def parts_of(case: Outside, data: Dataset, dtype: str) -> ModelParts:
    """The model in this dtype, its parameters moved off every kink, tie and zero that they start at."""
    model = case.make()
    model, params = model if isinstance(model, tuple) else (model, None)
    parts = take_apart(model, data.graph, data.features, named=_further(case, data), params=params)
    rng = np.random.default_rng(6)

    def moved(leaf: Any) -> Any:
        only_a_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        start = 0 if only_a_shape else np.asarray(leaf)
        scale = (1 if only_a_shape else 0.3) / np.sqrt(leaf.shape[0]) if leaf.ndim > 1 else 0.1
        return jnp.asarray(start + scale * rng.normal(size=leaf.shape), dtype)

    def kept(leaf: Any) -> Any:
        values = jnp.full(leaf.shape, 0.5) if isinstance(leaf, jax.ShapeDtypeStruct) else jnp.asarray(leaf)
        return values.astype(dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.dtype)

    return dataclasses.replace(parts, params=jax.tree.map(moved, parts.params), state=jax.tree.map(kept, parts.state))


def _further(case: Outside, data: Dataset) -> dict[str, Any]:
    return {name: ({**data.vertex_inputs, **data.edge_inputs})[name] for name in case.inputs}


def in_one_piece(case: Outside, parts: ModelParts, data: Dataset, *, seed: int = SEED, epoch: int = EPOCH) -> Step:
    """The oracle: the model as it is, on the whole graph at once, operation by operation."""
    graph, x, further, labels = jax.tree.map(
        jnp.asarray, (data.graph, data.features, _further(case, data), data.labels)
    )
    streams = epoch_rng(parts.streams, jnp.uint32(seed), jnp.uint32(epoch))

    def loss_of(params: Any) -> Any:
        output, state = parts.structure.apply_train(params, streams, parts.state, graph, x, **further)
        return jnp.where(data.train_mask, case.loss(output, labels), 0).sum() / data.train_mask.sum(), state

    (loss, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(parts.params)
    return Step(loss, gradients, state)


def exactly_in_one_piece(case: Outside, parts: ModelParts, data: Dataset) -> Step:
    """The oracle in float64, at the same float32 parameters, state, rows and dropout masks."""
    bernoulli = jax.random.bernoulli

    def in_float32(key: Any, p: Any, *args: Any, **kwargs: Any) -> Any:
        return bernoulli(key, np.float32(p), *args, **kwargs)  # a float64 probability draws other bits

    with jax.enable_x64(True), mock.patch("jax.random.bernoulli", in_float32):
        data = dataclasses.replace(data)
        for field in ("features", "labels", "vertex_inputs", "edge_inputs"):
            object.__setattr__(data, field, widened(getattr(data, field)))
        step = in_one_piece(
            case, dataclasses.replace(parts, params=widened(parts.params), state=widened(parts.state)), data
        )
    return Step(*jax.tree.map(np.asarray, (step.loss, step.gradients, step.state)))


def program_of(case: Outside, parts: ModelParts, data: Dataset) -> Program:
    """The model traced, split, and with all passes."""
    return optimise(trace(parts, DataSpec.of(data, parts.keywords), loss=case.loss, metrics=None))


def in_pieces(program: Program, parts: ModelParts, data: Dataset, bounds: Sequence[int]) -> Step:
    """The program on these intervals, operation by operation."""
    further = {**data.vertex_inputs, **data.edge_inputs}
    inputs = (data.features, *(further[entry.name] for entry in program.traced.spec.named))
    run = RunData(data.graph, inputs, data.labels, training_weights(data.train_mask, data.features.dtype))
    rows: dict[Any, int] = {"vertex": int(data.graph.num_vertices), "edge": int(data.graph.num_edges)}
    executor = ReferenceExecutor(program, run, Intervals.of(data.graph, tuple(bounds)), compile=interpret, rows=rows)
    result = executor.step(parts.params, parts.streams, parts.state, seed=SEED, epoch=EPOCH)
    return Step(result.loss, result.gradients, result.state)


def optimizer() -> optax.GradientTransformation:
    """Momentum: what an epoch has lost or counted twice is not forgotten, and what vanishes is not blown up."""
    return optax.sgd(0.02, momentum=0.9)


def trained_in_one_piece(case: Outside, parts: ModelParts, data: Dataset, epochs: int) -> Step:
    """The oracle, epoch by epoch: the last loss, how far parameters have moved, and the last state."""
    rule, now = optimizer(), parts
    memory = rule.init(parts.params)
    for epoch in range(epochs):
        step = in_one_piece(case, now, data, seed=SEED, epoch=epoch)
        updates, memory = rule.update(step.gradients, memory)
        now = dataclasses.replace(now, params=optax.apply_updates(now.params, updates), state=step.state)
    return Step(step.loss, _moved(now.params, parts.params), step.state)


def trained_by_pipe(case: Outside, parts: ModelParts, data: Dataset, epochs: int) -> Step:
    """The same by a pipeline of 2 servers with 3 intervals each."""
    config = PipelineConfig(mode="pipe", servers=2, intervals=3)
    pipeline = Pipeline.of(parts, data, optimizer(), config, loss=case.loss, seed=SEED)
    run = pipeline.start(parts.params, None, parts.state)
    try:
        run.barrier(epochs)
        records = [run.run_epoch() for _ in range(epochs)]
    finally:
        run.close()
    return Step(records[-1].loss, _moved(records[-1].params, parts.params), records[-1].state)


def _moved(after: Any, before: Any) -> Any:
    return jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), after, before)


def distance(found: Step, wanted: Step) -> float:
    """The largest relative distance: of the loss, of each parameter's gradient in L2, of each tensor of state.

    A gradient that is zero but for rounding (of a bias in front of a BatchNorm, say) is compared with all others' length.
    """
    assert jax.tree.structure(found.gradients) == jax.tree.structure(wanted.gradients)
    far = [abs(float(found.loss) - float(wanted.loss)) / abs(float(wanted.loss))]
    gradients = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(wanted.gradients)]
    length = np.sqrt(sum(np.vdot(gradient, gradient) for gradient in gradients))
    for leaf, gradient in zip(jax.tree.leaves(found.gradients), gradients, strict=True):
        norm, epsilon = np.linalg.norm(gradient), jnp.finfo(leaf.dtype).eps
        far.append(np.linalg.norm(leaf - gradient) / (norm if norm > 100 * epsilon * length else length))
    for leaf, value in zip(jax.tree.leaves(found.state), jax.tree.leaves(wanted.state), strict=True):
        difference = np.linalg.norm(np.asarray(leaf, np.float64) - np.asarray(value, np.float64))
        far.append(difference / (np.linalg.norm(np.asarray(value, np.float64)) or 1))
    assert np.isfinite(far).all()
    return float(max(far))
