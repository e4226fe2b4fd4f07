"""Classes and targets of graphs: one machine's trainer beside jax.grad of the same model, written out."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.errors import InputError
from dorylax.graph import Graph, merge_graphs
from dorylax.graph.dataset import Dataset
from dorylax.layers import GCN, GIN, Dropout
from dorylax.ops import edge_ids, gather, global_mean, vertex_ids
from dorylax.pipeline.config import PipelineConfig
from dorylax.tasks import GraphPrediction
from dorylax.trainer import Trainer


def _shapes(count: int = 24, labels: Any = None) -> Dataset:
    """Rings (class 1) and stars (class 0); features are their vertices' degrees."""
    rng = np.random.default_rng(0)
    graphs, features = [], []
    for number in range(count):
        size = int(rng.integers(4, 9))
        ids = np.arange(size)
        one, other = (ids, np.roll(ids, 1)) if number % 2 else (ids[1:], np.zeros(size - 1, int))
        graphs.append(Graph.from_coo(np.r_[one, other], np.r_[other, one], size))
        features.append(np.eye(4)[np.minimum(np.diff(graphs[-1].host_rows()[0]), 3)])
    place = np.arange(count) % 6
    return merge_graphs(
        "shapes",
        graphs,
        features,
        np.arange(count) % 2 if labels is None else labels,
        train_mask=place < 2,
        val_mask=(place == 2) | (place == 3),
        test_mask=place > 3,
    )


def _trainer(data: Dataset, task: GraphPrediction, width: int = 2, **options: Any) -> Trainer:
    model = GCN(4, 8, width, dropout=0.0, rngs=nnx.Rngs(0))
    return Trainer(model, data, task=task, **{"optimizer": optax.adam(0.05), "epochs": 30, **options})


@pytest.mark.parametrize("way", ["sum", "mean", "max"])
def test_one_step_is_the_gradient_of_the_mean_over_the_training_graphs(way: Any) -> None:
    data = _shapes()
    graph_of, labels = data.vertex_inputs["graph_of"], np.arange(24) % 2
    train = np.arange(24) % 6 < 2
    graphdef, start, rest = nnx.split(GCN(4, 8, 2, dropout=0.0, rngs=nnx.Rngs(0)), nnx.Param, ...)

    def loss(params: Any) -> Any:
        rows = nnx.merge(graphdef, params, rest)(data.graph, jnp.asarray(data.features))
        reduce = {"sum": jnp.sum, "mean": jnp.mean, "max": jnp.max}[way]
        logits = jnp.stack([reduce(rows[graph_of == number], axis=0) for number in range(24)])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)[train].mean()

    value, gradient = jax.value_and_grad(loss)(start)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, start, gradient)
    result = _trainer(data, GraphPrediction(way), optimizer=optax.sgd(0.5), epochs=1).fit()
    assert result.final_loss == pytest.approx(float(value), rel=1e-5)
    found = jax.tree.leaves(result.last_params)
    for mine, theirs in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_it_learns_and_answers_by_graph() -> None:
    trainer = _trainer(_shapes(), GraphPrediction(), epochs=150)
    result = trainer.fit()
    assert result.test_accuracy == 1.0
    assert (trainer.predict().argmax(axis=1) == np.arange(24) % 2).all()


def test_targets_of_graphs() -> None:
    sizes = np.bincount(_shapes().vertex_inputs["graph_of"])
    data = _shapes(labels=sizes.astype(np.float32))
    task = GraphPrediction("sum", "targets")
    result = _trainer(data, task, width=1, metric="mae", epochs=60).fit()
    assert result.metric == "mae"
    assert result.test_score is not None
    assert result.test_score < result.history[0].test_score / 3


@pytest.mark.parametrize("name", ["labels", "train_mask"])
def test_what_is_a_graphs_is_the_same_at_all_its_vertices(name: str) -> None:
    data = _shapes()
    changed = getattr(data, name).copy()
    changed[0] = 1 - changed[0]
    other = {"val_mask": data.val_mask & ~changed, "test_mask": data.test_mask & ~changed} if name != "labels" else {}
    with pytest.raises(InputError, match=f"{name} must be the same at all vertices of a graph"):
        GraphPrediction().prepare(dataclasses.replace(data, **{name: changed}, **other))


def test_edges_stay_inside() -> None:
    data = _shapes()
    graph = Graph.from_coo([0], [data.graph.num_vertices - 1], data.graph.num_vertices)
    with pytest.raises(InputError, match="an edge joins graph 0 with another, of 1 such edges"):
        GraphPrediction().prepare(dataclasses.replace(data, graph=graph))


def test_a_data_set_must_know_its_graphs() -> None:
    with pytest.raises(InputError, match=r"by dorylax\.graph\.merge_graphs"):
        GraphPrediction().prepare(dataclasses.replace(_shapes(), vertex_inputs={}))
    with pytest.raises(InputError, match="regression needs targets"):
        GraphPrediction(of="targets").prepare(_shapes())


def test_what_knows_only_vertices_is_refused_at_once() -> None:
    for options, message in (
        ({"pipeline": PipelineConfig(mode="pipe")}, "GraphPrediction trains on one machine only"),
        ({"order": "community"}, "single.order=community needs a task of vertices"),
        ({"gathered": "bfloat16"}, "single.gathered=bfloat16 needs a task of vertices"),
        ({"memory_limit": "8GiB"}, "single.memory_limit needs a task of vertices"),
    ):
        with pytest.raises(InputError, match=message):
            _trainer(_shapes(), GraphPrediction(), **options)


def test_reordered_data_are_the_same_graphs() -> None:
    data = _shapes()
    order = np.random.default_rng(1).permutation(data.graph.num_vertices)
    one, other = (_trainer(one, GraphPrediction(), epochs=5).fit() for one in (data, data.reorder(order)))
    for mine, theirs in zip(one.history, other.history, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-4)
        assert mine.val_accuracy == theirs.val_accuracy


def test_a_model_may_know_its_graphs_too() -> None:
    data = _shapes()

    class Centred(nnx.Module):
        """Rows relative to their graph's mean, which a readout by the mean makes 0."""

        def __call__(self, graph: Any, x: Any, graph_of: Any) -> Any:
            mean = jnp.stack(
                [jnp.where((graph_of == n)[:, None], x, 0).sum(axis=0) / (graph_of == n).sum() for n in range(24)]
            )
            return self.bias[...] + (x - mean[graph_of])[:, :2]

        def __init__(self) -> None:
            self.bias = nnx.Param(jnp.zeros(2))

    trainer = Trainer(Centred(), data, task=GraphPrediction("mean"), optimizer=optax.sgd(0.0), epochs=1)
    trainer.fit()
    np.testing.assert_allclose(trainer.predict(), np.zeros((24, 2)), atol=1e-6)


@pytest.mark.parametrize("numbers", [[0.0, 1.0], [0, 2], [1, 2]])
def test_graphs_are_numbered_from_zero(numbers: list[Any]) -> None:
    graph = Graph.from_coo([], [], 2)
    data = Dataset("two", graph, np.ones((2, 1)), [0, 1], vertex_inputs={"graph_of": np.array(numbers)})
    with pytest.raises(InputError, match="must number the graphs 0"):
        GraphPrediction().prepare(data)


NORMS = ("none", "layer", "batch", "graph", "pair")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("model", [GCN, GIN])  # GIN has norms inside its layers, too
def test_no_graph_knows_of_others(model: Any, norm: str) -> None:
    """Test graphs reach no training loss, and a prediction depends on its own graph alone."""
    data = _shapes()
    tested = data.test_mask

    def outcome(factor: float) -> tuple[list[float], Any, Any]:
        features = np.where(tested[:, None], factor * data.features, data.features)
        net = model(4, 8, 2, dropout=0.0, norm=norm, rngs=nnx.Rngs(0))
        changed = dataclasses.replace(data, features=features.astype(np.float32))
        trainer = Trainer(net, changed, task=GraphPrediction(), optimizer=optax.adam(0.05), epochs=3)
        result = trainer.fit()
        return [record.loss for record in result.history], trainer.predict("last"), trainer.rows("last")

    (losses, logits, rows), (other_losses, other_logits, other_rows) = outcome(1), outcome(100)
    assert losses == other_losses
    np.testing.assert_allclose(logits[np.arange(24) % 6 < 4], other_logits[np.arange(24) % 6 < 4], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows[~tested], other_rows[~tested], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["graph", "pair"])
def test_a_graph_among_others_is_normalised_as_it_is_alone(norm: str) -> None:
    data = _shapes(labels=np.arange(24) % 2)
    net = GCN(4, 8, 2, dropout=0.0, norm=norm, rngs=nnx.Rngs(0))
    trainer = Trainer(net, data, task=GraphPrediction(), optimizer=optax.sgd(0.1), epochs=1)
    trainer.fit()
    graph_of = data.vertex_inputs["graph_of"]
    own = np.flatnonzero(graph_of == 3)
    ends = [(u - own[0], v - own[0]) for u, v in zip(*_ends(data.graph), strict=True) if v in own]
    alone = Graph.from_coo(*np.transpose(ends), len(own))
    found = trainer.predict("last", graph=alone, x=data.features[own])
    np.testing.assert_allclose(trainer.rows("last")[own], found, rtol=1e-4, atol=1e-5)


def _ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    offsets, sources = graph.host_rows()
    return sources, np.repeat(np.arange(graph.num_vertices), np.diff(offsets))


def test_dropout_and_edges_of_the_training_graphs_are_those_of_all() -> None:
    """An epoch leaves the other graphs out, but neither renumbers vertices and edges nor forgets their inputs."""
    data = _shapes()
    order = np.random.default_rng(1).permutation(data.graph.num_vertices)
    edges = np.arange(data.graph.num_edges, dtype=np.float32)

    class Weighted(nnx.Module):
        """Its rows depend on dropout of vertices and edges, and on an input of the edges."""

        def __init__(self) -> None:
            self.linear = nnx.Linear(4, 2, rngs=nnx.Rngs(0))
            self.dropout = Dropout(0.5, rngs=nnx.Rngs(dropout=0))

        def __call__(self, graph: Any, x: Any, weight: Any) -> Any:
            dropped = self.dropout(weight[:, None], edge_ids(graph))[:, 0]
            return gather(graph, self.linear(self.dropout(x, vertex_ids(graph))), dropped)

    def losses(data: Dataset) -> list[float]:
        trainer = Trainer(Weighted(), data, task=GraphPrediction(), optimizer=optax.sgd(0.01), epochs=2)
        return [record.loss for record in trainer.fit().history]

    whole = dataclasses.replace(data, edge_inputs={"weight": edges / edges.max()})
    assert losses(whole) == pytest.approx(losses(whole.reorder(order)), rel=1e-5)
    unmasked = dataclasses.replace(
        whole, val_mask=np.zeros_like(data.val_mask), test_mask=np.zeros_like(data.test_mask)
    )
    assert losses(whole) == losses(unmasked)


def test_sums_over_all_graphs_are_refused() -> None:
    class Centred(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(4, 2, rngs=nnx.Rngs(0))

        def __call__(self, graph: Any, x: Any) -> Any:
            return self.linear(x - global_mean(graph, x)[None])

    with pytest.raises(ValueError, match=r"would mix the 24 graphs of this task: use dorylax\.ops\.readout"):
        Trainer(Centred(), _shapes(), task=GraphPrediction(), optimizer=optax.sgd(0.1))
