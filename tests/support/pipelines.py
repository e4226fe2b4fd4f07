"""Training by a pipeline and on one machine, with the same model, data and optimizer, for tests that compare them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax import ops
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.layers import Dropout, registry
from dorylax.pipeline import engine
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.saved import Saved
from dorylax.pipeline.stages import StageSizes
from dorylax.program.model.base import ModelParts
from dorylax.program.model.flax_nnx import put_back, take_apart
from dorylax.trainer import Trainer
from dorylax.trainer.step.objective import CLASSES
from support.graphs import messy_graph
from support.summing_models import SUMMING

OPTIONS: dict[str, dict[str, Any]] = {
    "gcn": {"dropout": 0.5, "hidden_features": 8},
    "gat": {"dropout": 0.4, "attention_dropout": 0.3, "hidden_features": 4, "heads": 2},
    "sage": {"dropout": 0.5, "hidden_features": 8, "aggregation": "max"},
    "gin": {"dropout": 0.5, "hidden_features": 8},
}
"""Models of the library with dropout on, small."""


class Drifting(nnx.Module):
    """What it computes depends on state that changes: a count, and running means of draws and of its parameters."""

    def __init__(self, features: int, classes: int, *, rngs: nnx.Rngs) -> None:
        self.enter, self.leave = nnx.Linear(features, 8, rngs=rngs), nnx.Linear(8, classes, rngs=rngs)
        self.dropout = Dropout(0.5, rngs=rngs)
        self.rngs = nnx.Rngs(dropout=rngs.dropout())
        self.calls = nnx.Variable(jnp.int32(0))
        self.drawn = nnx.BatchStat(jnp.zeros(8))
        self.strength = nnx.BatchStat(jnp.ones(()))

    def __call__(self, graph: Any, x: Any) -> Any:
        h = nnx.relu(self.enter(self.dropout(x, ops.vertex_ids(graph))))
        h = ops.gather(graph, h + self.drawn[...].astype(x.dtype), reduce="mean")  # as it was
        self.calls[...] += 1
        self.drawn[...] = 0.9 * self.drawn[...] + 0.1 * jax.random.normal(self.rngs.dropout(), (8,))
        strength = 0.8 * self.strength[...] + 0.2 * jnp.square(self.leave.kernel[...]).mean()
        self.strength[...] = jax.lax.stop_gradient(strength)
        h = h * jnp.tanh(0.1 * self.calls[...].astype(x.dtype))  # as it has become
        return self.leave(self.dropout(h, ops.vertex_ids(graph))) / (1 + self.strength[...].astype(x.dtype))


MODELS = (*OPTIONS, "drifting")
"""And the one above."""


class Trained(NamedTuple):
    """What training gave: the loss of each epoch, and the last parameters by path."""

    losses: list[float]
    params: dict[str, np.ndarray]


@functools.cache
def small_data() -> Dataset:
    """The smallest `communities`: 1000 vertices, symmetric."""
    return load("communities", size="tiny")


@functools.cache
def messy_data(num_vertices: int = 60, num_edges: int = 240, num_features: int = 5) -> Dataset:
    """A small directed graph with everything in it that goes wrong."""
    graph = messy_graph(num_vertices, num_edges)
    rng = np.random.default_rng(1)
    split = rng.permutation(num_vertices) % 3
    return Dataset(
        name="messy",
        graph=graph,
        features=rng.normal(size=(num_vertices, num_features)).astype(np.float32),
        labels=rng.integers(0, 3, num_vertices).astype(np.int32),
        num_classes=3,
        train_mask=split == 0,
        val_mask=split == 1,
        test_mask=split == 2,
    )


def in_dtype(data: Dataset, dtype: str) -> Dataset:
    """The data set with features of this dtype; `Dataset` itself makes them float32."""
    copy = dataclasses.replace(data)
    object.__setattr__(copy, "features", data.features.astype(dtype))
    return copy


class OfFunction(nnx.Module):
    """A plain function and its parameters as a module."""

    def __init__(self, function: Any, params: dict[str, Any]) -> None:
        self.function = function
        self.params = nnx.Dict({name: nnx.Param(jnp.asarray(value)) for name, value in params.items()})

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.function({name: param[...] for name, param in self.params.items()}, graph, x)


def make_model(name: str, data: Dataset, dtype: str = "float32", seed: int = 0) -> nnx.Module:
    """A small model with dropout (of `OPTIONS`, or "drifting"), or one that takes sums over all vertices (of `SUMMING`)."""
    rngs = nnx.Rngs(params=seed, dropout=seed)
    model: nnx.Module
    if name in SUMMING:
        made = SUMMING[name].make(jnp.dtype(dtype))
        model = OfFunction(*made) if isinstance(made, tuple) else made
    elif name == "drifting":
        model = Drifting(data.num_features, data.num_classes, rngs=rngs)
    else:
        model = registry.build(name, data.num_features, data.num_classes, OPTIONS[name], rngs)
    parts = take_apart(model)
    put_back(model, *(jax.tree.map(lambda leaf: _cast(leaf, dtype), tree) for tree in (parts.params, parts.state)))
    return model


def _cast(leaf: Any, dtype: str) -> Any:
    return jnp.asarray(leaf, dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def train_single(name: str, data: Dataset, epochs: int, *, dtype: str = "float32", seed: int = 0) -> Trained:
    """The un-partitioned model under `jax.value_and_grad`."""
    model = make_model(name, data, dtype, seed)
    result = Trainer(
        model, in_dtype(data, dtype), optimizer=optimizer(), epochs=epochs, seed=seed, eval_every=epochs, optimize=False
    ).fit()
    return Trained([record.loss for record in result.history], named(result.last_params))


def optimizer() -> optax.GradientTransformation:
    """Adam, whose state a lost or doubled gradient would show in."""
    return optax.adam(0.01)


def make_pipeline(
    name: str, data: Dataset, config: PipelineConfig, *, dtype: str = "float32", seed: int = 0
) -> tuple[Pipeline, ModelParts]:
    """A pipeline that is not started yet."""
    parts = take_apart(make_model(name, data, dtype, seed))
    return Pipeline.of(parts, in_dtype(data, dtype), optimizer(), config, seed=seed), parts


def make_hosts_pipeline(
    name: str, data: Dataset, config: PipelineConfig, *, dtype: str = "float32", seed: int = 0
) -> tuple[HostsPipeline, ModelParts]:
    """The same where hosts are elsewhere, and evaluate."""
    parts = take_apart(make_model(name, data, dtype, seed))
    made = HostsPipeline.of(parts, in_dtype(data, dtype), optimizer(), config, seed=seed, sums=CLASSES.sums)
    return made, parts


@contextlib.contextmanager
def running(
    name: str,
    data: Dataset,
    config: PipelineConfig,
    *,
    dtype: str = "float32",
    seed: int = 0,
    epoch: int = 0,
    trees: tuple[Any, Any, Any] | None = None,
    saved: Saved | None = None,
    trace: Trace | None = None,
) -> Iterator[PipelineRun]:
    """One that is started, from the model's own parameters unless others are given, and closed in the end."""
    if config.hosts == "inline":
        pipeline, parts = make_pipeline(name, data, config, dtype=dtype, seed=seed)
    else:
        pipeline, parts = make_hosts_pipeline(name, data, config, dtype=dtype, seed=seed)
    with contextlib.closing(
        pipeline.start(*(trees or (parts.params, None, parts.state)), epoch=epoch, saved=saved, trace=trace)
    ) as run:
        yield run


def train_pipeline(
    name: str, data: Dataset, epochs: int, config: PipelineConfig, *, dtype: str = "float32", seed: int = 0
) -> Trained:
    """The same by a pipeline."""
    with running(name, data, config, dtype=dtype, seed=seed) as run:
        run.barrier(epochs)
        records = [run.run_epoch() for _ in range(epochs)]
        return Trained([record.loss for record in records], named(records[-1].params))


def named(params: Any) -> dict[str, np.ndarray]:
    """Path → array."""
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(params)}


def farthest(one: Trained, other: Trained) -> float:
    """The largest relative L2 distance of any parameter tensor, and relative distance of any epoch's loss."""
    assert one.params.keys() == other.params.keys()
    assert len(one.losses) == len(other.losses)
    tensors = [np.linalg.norm(one.params[k] - other.params[k]) / np.linalg.norm(other.params[k]) for k in one.params]
    losses = [abs(a - b) / abs(b) for a, b in zip(one.losses, other.losses, strict=True)]
    return float(max(*tensors, *losses))


def by_model(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of one model and dtype follow each other: engines keep the last few programs that they have compiled."""
    return sorted(cases, key=lambda case: (case["model"], case["dtype"]))


@contextlib.contextmanager
def compiled_once(vertices: int, edges: int) -> Iterator[None]:
    """Stages are compiled for these numbers of rows whatever the intervals are: once for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "stage_sizes", lambda pieces, edge_chunk: StageSizes(vertices, edges))
        yield


def one_compilation(vertices: int, edges: int) -> Any:
    """Module fixture around `compiled_once`."""

    @pytest.fixture(autouse=True, scope="module")
    def compiled() -> Iterator[None]:
        with compiled_once(vertices, edges):
            yield

    return compiled


def piped_trainer(data: Dataset, folder: Path, epochs: int, config: PipelineConfig, **options: Any) -> Trainer:
    """Trainer of a GCN in a pipeline; resumes the run in the folder."""
    given = {"optimizer": optimizer(), "epochs": epochs, "pipeline": config, "run_directory": folder, "resume": True}
    return Trainer(make_model("gcn", data), data, **given | options)
