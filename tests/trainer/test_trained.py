"""What a trained run predicts, on graphs never seen too, and what its layers give."""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from support import compilation

from dorylax import layers, ops
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.pipeline.config import PipelineConfig
from dorylax.runs.result import Timings, TrainResult
from dorylax.trainer import Trainer, TrainingError

F = 6
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
"""Compiled as a whole and called layer by layer, a model adds in other orders."""
GRAPHS = {"larger": (90, 500), "one vertex": (1, 0), "without edges": (7, 0)}


def other(vertices: int, edges: int, seed: int = 1) -> tuple[Graph, np.ndarray]:
    """A graph that nobody trained on, its edges in no order, and features."""
    rng = np.random.default_rng(seed)
    graph = Graph.from_edge_index(rng.integers(0, vertices, (2, edges)), vertices)
    return graph, rng.normal(size=(vertices, F)).astype(np.float32)


@pytest.fixture(params=list(GRAPHS))
def unseen(request: pytest.FixtureRequest) -> tuple[Graph, np.ndarray]:
    return other(*GRAPHS[request.param])


def test_predicts_on_graphs_never_seen(trainer: Callable[..., Trainer], unseen: tuple[Graph, np.ndarray]) -> None:
    graph, x = unseen
    runner = trainer(optimizer=optax.adam(0.3), order="community")
    result = runner.fit()
    logits = result.predict(graph, x)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, result.model(graph, jnp.asarray(x)), **TOLERANCE)
    np.testing.assert_array_equal(runner.predict(graph=graph, x=x), logits)
    assert not np.array_equal(runner.predict("last", graph=graph, x=x), logits)


def test_rows_are_the_graph_s_whatever_its_order(trainer: Callable[..., Trainer]) -> None:
    result = trainer().fit()
    graph, x = other(30, 200)
    order = np.random.default_rng(0).permutation(30)
    moved = graph.reorder(order)
    np.testing.assert_allclose(result.predict(moved, x[order]), result.predict(graph, x)[order], **TOLERANCE)


def test_the_model_is_the_best_epoch_s_and_nothing_changes_it(trainer: Callable[..., Trainer], data: Dataset) -> None:
    runner = trainer()
    result = runner.fit()
    before = result.predict(data.graph, data.features)
    jax.tree.map(np.testing.assert_array_equal, *(
        jax.tree.map(np.asarray, tree) for tree in (nnx.to_pure_dict(nnx.state(result.model, nnx.Param)), result.params)
    ))  # fmt: skip
    nnx.update(runner.model, jax.tree.map(jnp.zeros_like, nnx.state(runner.model, nnx.Param)))
    for leaf in jax.tree.leaves(result.params):
        leaf[:] = 0
    np.testing.assert_array_equal(result.predict(data.graph, data.features), before)
    np.testing.assert_array_equal(runner.predict(), before)


def test_statistics_of_the_best_epoch_are_used(trainer: Callable[..., Trainer], norm_net: Any) -> None:
    """Batch norm evaluates by what it has averaged while it trained, and one graph's rows do not change it."""
    with pytest.warns(UserWarning, match="cannot be split"):
        result = trainer(model=norm_net(rngs=nnx.Rngs(0)), epochs=4).fit()
    graph, x = other(20, 50)
    h = np.asarray(x - result.state["norm"]["mean"]) / np.sqrt(result.state["norm"]["var"] + 1e-5)
    h = h * result.params["norm"]["scale"] + result.params["norm"]["bias"]
    want = (h - h.max(axis=0)) @ result.params["out"]["kernel"] + result.params["out"]["bias"]
    assert np.abs(result.state["norm"]["mean"]).max() > 0.01
    for _ in range(2):
        np.testing.assert_allclose(result.predict(graph, x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.model(graph, jnp.asarray(x)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_runs_of_a_pipeline_predict_too(trainer: Callable[..., Trainer], mode: Any) -> None:
    result = trainer(epochs=2, pipeline=PipelineConfig(mode=mode, servers=2, intervals=2)).fit()
    graph, x = other(40, 160)
    np.testing.assert_allclose(result.predict(graph, x), result.model(graph, jnp.asarray(x)), **TOLERANCE)


def test_a_run_directory_is_enough(trainer: Callable[..., Trainer], tmp_path: Any) -> None:
    """While its run goes on, too."""
    graph, x = other(40, 160)
    seen = []

    class During:
        def started(self, total_epochs: int, first_epoch: int) -> None: ...
        def finished(self, result: TrainResult) -> None: ...
        def epoch(self, record: Any) -> None:
            if record.epoch == 4:
                while not list(tmp_path.glob("checkpoints/epoch-00000004/manifest.json")):  # written by another thread
                    time.sleep(0.01)
                seen.append(trainer(run_directory=tmp_path).predict("last", graph=graph, x=x))

    options = {"run_directory": tmp_path, "checkpoint_every": 2}
    trainer(**options, observers=[During()]).fit()
    straight = trainer(epochs=4)
    straight.fit()
    np.testing.assert_allclose(seen[0], straight.predict("last", graph=graph, x=x), **TOLERANCE)


class Positioned(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.enter = nnx.Linear(F + 2, 8, rngs=rngs)
        self.leave = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, graph: Any, x: Any, *, pos: Any, weight: Any = None) -> Any:
        h = jax.nn.relu(self.enter(jnp.concatenate([x, pos], axis=-1)))
        self.sow(nnx.Intermediate, "rows", h)
        return self.leave(ops.gather(graph, h, weight))


@pytest.fixture
def positioned(data: Dataset) -> Dataset:
    rng = np.random.default_rng(0)
    pos = rng.normal(size=(len(data.labels), 2)).astype(np.float32)
    weight = rng.random(data.graph.num_edges).astype(np.float32)
    return dataclasses.replace(data, vertex_inputs={"pos": pos}, edge_inputs={"weight": weight})


@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
def test_further_inputs_are_those_that_it_was_trained_with(positioned: Dataset) -> None:
    result = Trainer(Positioned(rngs=nnx.Rngs(0)), positioned, optimizer=optax.adam(0.05), epochs=2).fit()
    graph, x = other(40, 160)
    pos, weight = np.ones((40, 2)), np.arange(160)
    logits = result.predict(graph, x, pos=pos, weight=weight)
    want = result.model(
        graph, jnp.asarray(x), pos=jnp.asarray(pos, jnp.float32), weight=jnp.asarray(weight, jnp.float32)
    )
    np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-4)
    edges = np.random.default_rng(1).integers(0, 40, (2, 160))
    carried = Graph.from_coo(*edges, 40, edge_data={"weight": weight.astype(np.float32)})
    np.testing.assert_array_equal(result.predict(carried, x, pos=pos), logits)
    found = result.intermediates(graph, x, pos=pos, weight=weight)
    assert found["rows"].shape == (40, 8)
    np.testing.assert_array_equal(found["rows"], np.maximum(found["enter"], 0))
    for given, message in (
        ({"pos": pos}, r"give weight, float32 \[E\]"),
        ({"pos": pos, "weight": weight, "wieght": weight}, "not trained with an input 'wieght'.*weight"),
        ({"pos": pos[:, :1], "weight": weight}, r"pos, float32 \[V, 2\], got float32 \[40, 1\]"),
        ({"pos": pos, "weight": weight[:7]}, "one row per edge"),
        ({"pos": pos > 0, "weight": weight}, "got bool"),
    ):
        with pytest.raises(ValueError, match=message):
            result.predict(graph, x, **given)


def test_what_does_not_fit_is_one_line(trainer: Callable[..., Trainer]) -> None:
    runner = trainer(epochs=1)
    with pytest.raises(TrainingError, match="no trained parameters"):
        runner.predict(graph=other(4, 4)[0], x=other(4, 4)[1])
    result = runner.fit()
    graph, x = other(9, 20)
    for call, message in (
        (lambda: result.predict(graph, x[:, :5]), r"^x must have the 6 features per vertex .* got 5: x \[9, 5\]$"),
        (lambda: result.predict(graph, x[:4]), "one row per vertex"),
        (
            lambda: result.predict(np.zeros((2, 3), int), x),
            r"must be a dorylax.Graph, got ndarray: Graph.from_edge_index",
        ),
        (lambda: result.predict(graph, x, weight=x), "takes none beside graph and x"),
        (lambda: runner.predict(graph=graph), "needs both"),
        (lambda: runner.predict(x=x), "needs both"),
        (lambda: result.predict(graph, x * np.nan), "finite"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_numbers_alone_predict_nothing(trainer: Callable[..., Trainer]) -> None:
    result = TrainResult([], None, None, None, "epochs", Timings())
    with pytest.raises(TrainingError, match="numbers alone"):
        _ = result.model
    trained = trainer(epochs=1).fit()
    back = pickle.loads(pickle.dumps(trained))
    assert back.history == trained.history
    with pytest.raises(TrainingError, match="numbers alone"):
        back.predict(*other(4, 4))


# What layers give


def test_outputs_of_layers_by_their_names(trainer: Callable[..., Trainer], data: Dataset) -> None:
    runner = trainer(epochs=2)
    result = runner.fit()
    found = runner.intermediates()
    assert list(found) == ["convs.0", "convs.1", "drop", "output"]
    dense = data.features @ result.params["convs"][0]["kernel"] + result.params["convs"][0]["bias"]
    np.testing.assert_allclose(found["convs.0"], dense, **TOLERANCE)
    np.testing.assert_array_equal(found["convs.1"], found["output"])
    np.testing.assert_allclose(found["output"], runner.predict(), **TOLERANCE)


@pytest.mark.parametrize("name", ["GAT", "GATv2"])
def test_attention_is_by_edge_id_and_sums_to_one(data: Dataset, name: str) -> None:
    model = getattr(layers, name)(F, 4, 3, heads=2, rngs=nnx.Rngs(0))
    result = Trainer(model, data, optimizer=optax.adam(0.05), epochs=2).fit()
    edges = np.random.default_rng(0).integers(0, 25, (2, 90))
    graph, x = Graph.from_edge_index(edges, 25), other(25, 1)[1]
    found = result.intermediates(graph, x)
    attention, loops = found["convs.0.attention"], found["convs.0.loop_attention"]
    assert (attention.shape, loops.shape) == ((90, 2), (25, 2))
    sums = loops.copy()
    np.add.at(sums, edges[1], attention)
    np.testing.assert_allclose(sums, 1, rtol=1e-5)
    own = np.isin(np.arange(25), edges[0][edges[0] == edges[1]])
    assert np.all(loops[own] == 0)
    assert np.all(loops[~own] > 0)
    # What the fused operator gives, from the coefficients.
    if name == "GAT":
        z = (x @ result.params["convs"][0]["kernel"]).reshape(25, 2, 4)
        y = loops[..., None] * z
        np.add.at(y, edges[1], attention[..., None] * z[edges[0]])
        np.testing.assert_allclose(found["convs.0"], y.reshape(25, 8) + result.params["convs"][0]["bias"], **TOLERANCE)
    np.testing.assert_allclose(found["output"], result.predict(graph, x), **TOLERANCE)
    np.testing.assert_allclose(found["skeleton.hidden"], jax.nn.elu(found["convs.0"]), **TOLERANCE)


def test_layers_of_linen_modules_too(data: Dataset) -> None:
    class Mean(linen.Module):
        @linen.compact
        def __call__(self, graph: Any, x: Any, train: bool) -> Any:
            x = linen.Dropout(0.5, deterministic=not train)(x)
            h = linen.Dense(8)(ops.gather(graph, x, reduce="mean"))
            self.sow("intermediates", "rows", h)
            return linen.Dense(3)(h)

    result = Trainer(Mean(), data, optimizer=optax.adam(0.05), epochs=2).fit()
    graph, x = other(20, 60)
    found = result.intermediates(graph, x)
    assert list(found) == ["Dense_0", "Dense_1", "Dropout_0", "output", "rows"]
    np.testing.assert_array_equal(found["rows"], found["Dense_0"])
    np.testing.assert_array_equal(found["Dropout_0"], x)
    np.testing.assert_allclose(result.model(graph, x, train=False), result.predict(graph, x), **TOLERANCE)


def test_functions_have_no_layers(data: Dataset) -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return ops.gather(graph, x @ params)

    params = np.ones((F, 3), np.float32)
    result = Trainer(model, data, params=params, optimizer=optax.sgd(0.1), epochs=1).fit()
    graph, x = other(20, 60)
    with compilation.as_users_do():
        np.testing.assert_allclose(result.model(graph, x), result.predict(graph, x), **TOLERANCE)
    with pytest.raises(TypeError, match="model is a function, without layers"):
        result.intermediates(graph, x)
