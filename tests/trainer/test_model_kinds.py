"""Any model on any data: NNX, Linen and functions, with further inputs and losses of their own, against `jax.grad`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from support.covering import pairwise
from support.graphs import messy_graph

from dorylax import ops
from dorylax.errors import InputError
from dorylax.graph.dataset import Dataset
from dorylax.pipeline import engine
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.stages import StageSizes
from dorylax.serverless.config import TensorConfig
from dorylax.trainer import Trainer

V, E, F, C, H = 60, 240, 5, 3, 8
EPOCHS = 20
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
KINDS = ["nnx", "linen", "function"]
TASKS = ["classes", "own loss", "regression", "multi-task"]
WAYS: dict[str, dict[str, Any]] = {
    "optimised": {},
    "plain": {"optimize": False},
    "pipe": {"pipeline": PipelineConfig(servers=2, intervals=3)},
}
WIDTHS = {"enter": (F + 2, H), "leave": (H, C)}


@pytest.fixture(autouse=True)
def one_compilation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(engine, "stage_sizes", lambda pieces, edge_chunk: StageSizes(V, 64))
    yield
    jax.config.update("jax_enable_x64", False)


def forward(task: str, dense: Any, graph: Any, x: Any, *, edge_weight: Any, pos: Any) -> Any:
    h = jnp.tanh(dense("enter", jnp.concatenate([x, pos], axis=1)))
    out = dense("leave", h + ops.gather(graph, h, edge_weight, reduce="sum"))
    if task == "regression":
        return out[:, 0]
    return {"level": out[:, 0], "scores": out} if task == "multi-task" else out


class Nnx(nnx.Module):
    def __init__(self, task: str) -> None:
        self.task = task
        for name, widths in WIDTHS.items():
            setattr(self, name, nnx.Linear(*widths, rngs=nnx.Rngs(0)))

    def __call__(self, graph: Any, x: Any, edge_weight: Any, *, pos: Any) -> Any:
        return forward(
            self.task, lambda name, value: getattr(self, name)(value), graph, x, edge_weight=edge_weight, pos=pos
        )


class Linen(linen.Module):
    task: str

    @linen.compact
    def __call__(self, graph: Any, x: Any, pos: Any, edge_weight: Any = None, train: bool = False) -> Any:
        def dense(name: str, value: Any) -> Any:
            return linen.Dense(WIDTHS[name][1], name=name)(value)

        return forward(self.task, dense, graph, x, edge_weight=edge_weight, pos=pos)


def function(task: str, params: Any, graph: Any, x: Any, **inputs: Any) -> Any:
    def dense(name: str, value: Any) -> Any:
        return value @ params[name]["kernel"] + params[name]["bias"]

    return forward(task, dense, graph, x, edge_weight=inputs["edge_weight"], pos=inputs["pos"])


def focal(output: Any, labels: Any) -> Any:
    logarithms = jax.nn.log_softmax(output)
    chosen = jnp.take_along_axis(logarithms, labels[:, None], axis=1)[:, 0]
    return -((1 - jnp.exp(chosen)) ** 2) * chosen


def both(output: Any, labels: Any) -> Any:
    return (output["level"] - labels[:, 0]) ** 2 + optax.sigmoid_binary_cross_entropy(output["scores"], labels).sum(1)


LOSSES: dict[str, Any] = {"classes": None, "own loss": focal, "regression": "mse", "multi-task": both}


@functools.cache
def dataset(task: str, dtype: str = "float32") -> Dataset:
    rng = np.random.default_rng(1)
    split = rng.permutation(V) % 3
    targets = {"regression": (V,), "multi-task": (V, C)}.get(task)
    labels = rng.integers(0, C, V).astype(np.int32) if targets is None else rng.random(targets).astype(np.float32)
    data = Dataset(
        "messy",
        messy_graph(V, E),
        rng.normal(size=(V, F)).astype(np.float32),
        labels,
        C if targets is None else None,
        *(split == k for k in range(3)),
        vertex_inputs={"pos": rng.normal(size=(V, 2)).astype(np.float32), "spare": rng.random(V).astype(np.float32)},
        edge_inputs={"edge_weight": rng.random(E).astype(np.float32)},
    )
    copy = dataclasses.replace(data)  # `Dataset` itself makes floating arrays float32
    object.__setattr__(copy, "features", data.features.astype(dtype))
    return copy


def initial(dtype: str = "float32") -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    return {
        name: {"kernel": rng.normal(0, 0.3, widths).astype(dtype), "bias": rng.normal(0, 0.1, widths[1]).astype(dtype)}
        for name, widths in WIDTHS.items()
    }


def arguments(kind: str, task: str, dtype: str = "float32") -> dict[str, Any]:
    """Model and parameters, the same for every kind."""
    if kind == "nnx":
        model = Nnx(task)
        nnx.update(model, jax.tree.map(jnp.asarray, initial(dtype)))
        return {"model": model}
    chosen = Linen(task) if kind == "linen" else functools.partial(function, task)
    return {"model": chosen, "params": initial(dtype)}


def train(kind: str, task: str, dtype: str = "float32", **options: Any) -> Any:
    found = (
        arguments(kind, task, dtype) | {"epochs": EPOCHS, "eval_every": EPOCHS, "optimizer": optax.adam(0.01)} | options
    )
    runner = Trainer(found.pop("model"), dataset(task, dtype), loss=LOSSES[task], **found)
    return runner, runner.fit()


@functools.cache
def oracle(task: str, dtype: str, epochs: int) -> tuple[list[float], Any]:
    """The un-partitioned model under `jax.value_and_grad`."""
    data, optimizer = dataset(task, dtype), optax.adam(0.01)
    rows = {"classes": optax.softmax_cross_entropy_with_integer_labels, "regression": lambda a, b: (a - b) ** 2}.get(
        task, LOSSES[task]
    )

    def loss(params: Any) -> Any:
        output = function(task, params, data.graph, data.features, **data.vertex_inputs, **data.edge_inputs)
        return rows(output, data.labels)[data.train_mask].mean()

    params = jax.tree.map(jnp.asarray, initial(dtype))
    state, losses = optimizer.init(params), []
    step = jax.jit(jax.value_and_grad(loss))
    for _ in range(epochs):
        value, gradients = step(params)
        losses.append(float(value))
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return losses, jax.tree.map(np.asarray, params)


def check(result: Any, task: str, dtype: str, epochs: int = EPOCHS) -> None:
    losses, params = oracle(task, dtype, epochs)
    np.testing.assert_allclose([record.loss for record in result.history], losses, rtol=TOLERANCE[dtype])
    for name, layer in params.items():
        for part, wanted in layer.items():
            found = result.last_params[name][part]
            assert found.dtype == dtype
            assert np.linalg.norm(found - wanted) <= TOLERANCE[dtype] * np.linalg.norm(wanted)


FACTORS = {"kind": KINDS, "task": TASKS, "way": list(WAYS)}
PAIRS = [tuple(case.values()) for case in pairwise(FACTORS)]


@pytest.mark.parametrize(
    ("kind", "task", "way"),
    [
        pytest.param(*case, id="-".join(case), marks=() if case in PAIRS or "pipe" in case else pytest.mark.exhaustive)
        for case in itertools.product(*FACTORS.values())
    ],
)
def test_twenty_epochs_are_those_of_the_model(kind: str, task: str, way: str) -> None:
    """Every kind and task in a pipeline; elsewhere every pair, and with the exhaustive ones all."""
    jax.config.update("jax_enable_x64", True)
    _, result = train(kind, task, "float64", **WAYS[way])
    assert (result.passes is None) == (way == "plain")
    check(result, task, "float64")


@pytest.mark.parametrize(
    ("kind", "task", "pipeline"),
    [
        (
            "linen",
            "regression",
            PipelineConfig(
                servers=2, intervals=3, tensor=TensorConfig(placement="functions", backend="local", workers=2)
            ),
        ),
        ("function", "multi-task", PipelineConfig(servers=2, intervals=2, mode="no-pipe")),
        ("nnx", "classes", None),
    ],
    ids=["local workers", "no-pipe", "float32"],
)
def test_elsewhere(kind: str, task: str, pipeline: PipelineConfig | None) -> None:
    _, result = train(kind, task, pipeline=pipeline)
    check(result, task, "float32")


def test_a_synchronous_epoch_of_an_asynchronous_run() -> None:
    """The first: what follows reads rows of epochs before."""
    config = PipelineConfig(servers=2, intervals=3, mode="async", staleness=1, update="per_epoch", clock="virtual")
    _, result = train("nnx", "own loss", pipeline=config, epochs=1)
    check(result, "own loss", "float32", epochs=1)


def test_staleness_reaches_further_inputs() -> None:
    config = PipelineConfig(servers=2, intervals=3, mode="async", staleness=1, clock="virtual")
    losses = [train("function", "regression", pipeline=config)[1].history for _ in range(2)]
    values = [[record.loss for record in history] for history in losses]
    assert values[0] == values[1]
    assert values[0][-1] < values[0][0]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_and_prediction(kind: str) -> None:
    """Losses of an evaluation are means over the masks; the best epoch is that of the lowest validation loss."""
    runner, result = train(kind, "regression", eval_every=1)
    data = dataset("regression")
    best = result.history[result.best_epoch]
    assert best.val_loss == min(record.val_loss for record in result.history)
    assert (result.metric, result.val_accuracy, result.test_accuracy) == ("loss", None, None)
    found = runner.predict()
    errors = (found - data.labels) ** 2
    for mask in ("train", "val", "test"):
        wanted = errors[getattr(data, f"{mask}_mask")].mean()
        assert getattr(best, f"{mask}_loss") == pytest.approx(wanted, rel=1e-4)
    assert result.val_loss == best.val_loss
    assert result.test_loss == best.test_loss
    direct = function(
        "regression",
        jax.tree.map(jnp.asarray, result.params),
        data.graph,
        data.features,
        **data.vertex_inputs,
        **data.edge_inputs,
    )
    np.testing.assert_allclose(found, direct, atol=1e-5)


@pytest.mark.usefixtures("beyond_cache")
@pytest.mark.parametrize(
    ("task", "pipeline"), [*((task, None) for task in TASKS), ("regression", PipelineConfig(servers=2))]
)
def test_values_per_edge_stay_with_their_edges_in_another_order(task: str, pipeline: PipelineConfig | None) -> None:
    runner, result = train("function", task, order="community", pipeline=pipeline)
    check(result, task, "float32")
    given, _ = train("function", task, order="given")
    for found, wanted in zip(jax.tree.leaves(runner.predict()), jax.tree.leaves(given.predict()), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.usefixtures("beyond_cache")
def test_what_has_no_row_per_vertex_keeps_the_given_order() -> None:
    def model(params: Any, graph: Any, x: Any, edge_weight: Any) -> Any:
        return {"rows": x @ params["w"], "edges": edge_weight[:, None] * params["w"][0]}

    def loss(output: Any, labels: Any) -> Any:
        return (output["rows"] - labels[:, None]).sum(axis=1) ** 2

    data, params = dataset("regression"), {"w": np.ones((F, 1))}
    runner = Trainer(model, data, loss=loss, params=params, optimizer=optax.sgd(1e-3), epochs=2)
    result = runner.fit()
    assert result.passes is not None
    wanted = data.edge_inputs["edge_weight"][:, None] * result.params["w"][0]
    np.testing.assert_allclose(runner.predict()["edges"], wanted, rtol=1e-6)
    with pytest.raises(InputError, match="returns a row per vertex"):
        Trainer(model, data, loss=loss, params=params, optimizer=optax.sgd(1e-3), order="community").fit()
