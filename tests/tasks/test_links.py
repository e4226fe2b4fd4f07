"""Links: training beside jax.grad of the same loss, negatives that are the same for the same seed, and resuming."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dorylax
from dorylax.errors import InputError
from dorylax.graph import Graph
from dorylax.graph.dataset import Dataset
from dorylax.graph.rows import all_rows
from dorylax.inference.loader import Model
from dorylax.layers import GCN
from dorylax.metrics.catalogue import roc_auc
from dorylax.pipeline.config import PipelineConfig
from dorylax.tasks import LinkPrediction
from dorylax.tasks.all_pairs import rank_among_all
from dorylax.trainer import Trainer

DATA = dorylax.load("communities", size="tiny")


def _trainer(task: LinkPrediction, data: Dataset = DATA, **options: Any) -> Trainer:
    model = GCN(data.num_features, 8, 6, dropout=0.0, rngs=nnx.Rngs(0))
    return Trainer(model, data, task=task, **{"optimizer": optax.adam(0.01), "epochs": 4, **options})


def _edges(graph: Graph) -> set[tuple[int, int]]:
    offsets, sources = graph.host_rows()
    return set(zip(sources.tolist(), all_rows(offsets).tolist(), strict=True))


def test_one_step_is_the_gradient_of_the_mean_over_the_training_pairs() -> None:
    task = LinkPrediction(redrawn=False)
    examples = task.prepare(DATA)
    pairs, train = examples.vertex_inputs["link_pairs"], examples.train_mask
    graphdef, start, rest = nnx.split(GCN(DATA.num_features, 8, 6, dropout=0.0, rngs=nnx.Rngs(0)), nnx.Param, ...)

    def loss(params: Any) -> Any:
        rows = nnx.merge(graphdef, params, rest)(task.split(DATA).graph, jnp.asarray(DATA.features))
        scores = (rows[pairs[train, 0]] * rows[pairs[train, 1]]).sum(axis=1)
        labels = jnp.asarray(examples.labels[train])
        return -jnp.mean(labels * jax.nn.log_sigmoid(scores) + (1 - labels) * jax.nn.log_sigmoid(-scores))

    value, gradient = jax.value_and_grad(loss)(start)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, start, gradient)
    trainer = _trainer(task, optimizer=optax.sgd(0.5), epochs=1)
    result = trainer.fit()
    assert result.final_loss == pytest.approx(float(value), rel=1e-5)
    for mine, theirs in zip(jax.tree.leaves(result.last_params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    # What is reported is the metric of what is predicted, pair by pair.
    outputs = trainer.predict("last")
    for name in ("train", "val", "test"):
        mask = getattr(examples, f"{name}_mask")
        expected_auc = roc_auc(outputs[mask].astype(np.float64), examples.labels[mask] > 0.5)
        assert result.history[0].score(name) == pytest.approx(expected_auc, abs=1e-3)


def test_links_that_are_held_back_carry_no_message() -> None:
    examples = LinkPrediction(apart=0.5).prepare(DATA)
    pairs, edges = examples.vertex_inputs["link_pairs"], _edges(examples.graph)
    known = _edges(DATA.graph)
    for name in ("train_mask", "val_mask", "test_mask"):
        for (source, target), label in zip(
            pairs[getattr(examples, name)].tolist(), examples.labels[getattr(examples, name)], strict=True
        ):
            assert (source, target) not in edges or not label
            if label:
                assert (source, target) in known
            elif name != "train_mask":
                assert (source, target) not in known


def test_pairs_that_are_no_links_are_drawn_anew_and_the_same_for_the_same_epoch() -> None:
    task = LinkPrediction()
    examples = task.prepare(DATA)
    negative = examples.train_mask & (examples.labels == 0)
    fixed = examples.vertex_inputs["link_pairs"]
    drawn = {epoch: task.redraw(examples, 3, epoch)["link_pairs"] for epoch in (0, 1)}
    again = task.redraw(task.prepare(DATA), 3, 1)["link_pairs"]
    assert (again == drawn[1]).all()
    for pairs in (drawn[0], task.redraw(examples, 4, 1)["link_pairs"], fixed):
        assert (pairs[~negative] == drawn[1][~negative]).all()  # nothing else moves
        assert (pairs[negative] != drawn[1][negative]).any(axis=1).mean() > 0.9
    trained = {tuple(pair) for pair in fixed[examples.train_mask & (examples.labels == 1)].tolist()}
    assert not trained & {tuple(pair) for pair in drawn[1][negative].tolist()}
    assert LinkPrediction(redrawn=False).redraw(examples, 3, 1) == {}


def test_resumed_is_bit_identical(tmp_path: Any) -> None:
    whole = _trainer(LinkPrediction(), epochs=6).fit()
    _trainer(LinkPrediction(), epochs=3, run_directory=tmp_path / "run").fit()
    rest = _trainer(LinkPrediction(), epochs=6, run_directory=tmp_path / "run", resume=True).fit()
    assert rest.first_epoch == 3
    for mine, theirs in zip(jax.tree.leaves(rest.last_params), jax.tree.leaves(whole.last_params), strict=True):
        assert (mine == theirs).all()
    assert [record.score("val") for record in rest.history] == [record.score("val") for record in whole.history]


def test_another_split_is_another_run(tmp_path: Any) -> None:
    _trainer(LinkPrediction(), run_directory=tmp_path / "run").fit()
    with pytest.raises(dorylax.DorylaxError, match="seed"):
        _trainer(LinkPrediction(seed=1), epochs=6, run_directory=tmp_path / "run", resume=True).fit()


def test_a_decoder_of_ones_own() -> None:
    def distance(sources: Any, targets: Any) -> Any:
        return -jnp.square(sources - targets).sum(axis=1)

    trainer = _trainer(LinkPrediction(decoder=distance))
    trainer.fit()
    assert (trainer.predict() <= 0).all()


class _Open(nnx.Module):
    """Takes whatever there is, and adds a column of it to each row."""

    def __init__(self) -> None:
        self.inner = GCN(DATA.num_features, 8, 6, dropout=0.0, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: Any, **inputs: Any) -> Any:
        assert inputs.keys() == {"height"}
        return self.inner(graph, x) + inputs["height"]


class _Named(nnx.Module):
    """Asks for the pairs."""

    def __init__(self) -> None:
        self.inner = GCN(DATA.num_features, 8, 6, dropout=0.0, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: Any, link_pairs: Any) -> Any:
        return self.inner(graph, x) + link_pairs.shape[0]


def test_pairs_are_given_to_models_that_name_them_alone() -> None:
    """Nobody has any who predicts: rows are of vertices."""
    height = np.ones((DATA.graph.num_vertices, 1), np.float32)
    data = Dataset("high", DATA.graph, DATA.features, DATA.labels, vertex_inputs={"height": height})
    options: dict[str, Any] = {"task": LinkPrediction(), "optimizer": optax.adam(0.01), "epochs": 2}
    result = Trainer(_Open(), data, **options).fit()
    graph, x = Graph.from_coo([0, 1], [1, 2], 3), DATA.features[:3]
    rows = result.predict(graph, x, height=height[:3])
    np.testing.assert_allclose(rows, result.model(graph, jnp.asarray(x), height=height[:3]), rtol=1e-5, atol=1e-6)
    trainer = Trainer(_Open(), data, **options)
    trainer.fit()
    assert trainer.intermediates().keys() == trainer.intermediates(graph=graph, x=x, height=height[:3]).keys()
    np.testing.assert_allclose(trainer.rows(), result.predict(trainer.data.graph, data.features, height=height))


def test_models_that_name_pairs_predict_with_any_number_of_them(tmp_path: Path) -> None:
    trainer = Trainer(_Named(), DATA, task=LinkPrediction(), optimizer=optax.adam(0.01), epochs=2)
    trained = trainer.fit()
    graph, x = Graph.from_coo([0, 1], [1, 2], 3), DATA.features[:3]
    with pytest.raises(ValueError, match=r"trained with a further input: give link_pairs, int32 \[N, 2\]"):
        trained.predict(graph, x)
    rows = trained.predict(graph, x, link_pairs=[[0, 1]] * 7)
    np.testing.assert_allclose(rows, trained.model(graph, jnp.asarray(x), np.zeros((7, 2))), rtol=1e-5)
    with pytest.raises(ValueError, match=r"link_pairs, int32 \[N, 2\], got int32 \[4, 3\]"):
        trained.predict(graph, x, link_pairs=np.zeros((4, 3), int))
    pairs = trainer.data.vertex_inputs["link_pairs"]
    np.testing.assert_allclose(trainer.rows(), trained.predict(trainer.data.graph, DATA.features, link_pairs=pairs))
    trained.export(tmp_path / "model.zip")
    exported = Model(tmp_path / "model.zip")
    for number in (1, 7):
        some = np.zeros((number, 2), int)
        found = exported([[0, 1], [1, 2]], x, link_pairs=some)
        np.testing.assert_allclose(found, trained.predict(graph, x, link_pairs=some), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"link_pairs must be \[N, 2\], got \[3\]"):
        exported([[0, 1], [1, 2]], x, link_pairs=[0, 1, 2])


@pytest.mark.parametrize("metric", ["average_precision", "mrr", "hits_at_20", "loss"])
def test_any_metric_of_pairs(metric: str) -> None:
    result = _trainer(LinkPrediction(), metric=metric).fit()
    assert result.metric == metric
    assert result.val_score is not None


def test_edge_values_stay_with_their_edges() -> None:
    weights = np.arange(DATA.graph.num_edges, dtype=np.float32)
    data = Dataset("weighted", DATA.graph, DATA.features, DATA.labels, edge_inputs={"weight": weights})
    examples = LinkPrediction().prepare(data)
    assert examples.edge_inputs["weight"].tolist() == weights[np.asarray(examples.graph.edge_ids)].tolist()


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="LinkPrediction trains on one machine only"):
        _trainer(LinkPrediction(), pipeline=PipelineConfig(mode="pipe"))
    with pytest.raises(InputError, match="pairs of vertices take binary_cross_entropy"):
        _trainer(LinkPrediction(), loss="mse")
    with pytest.raises(dorylax.DorylaxError, match="user's order"):
        _trainer(LinkPrediction(), DATA.reorder(np.arange(DATA.graph.num_vertices)[::-1]))
    with pytest.raises(dorylax.DorylaxError, match=r"train\.patience needs validation"):
        _trainer(LinkPrediction(val_fraction=0.0), patience=3)


@pytest.mark.parametrize("symmetric", [True, False])
def test_ranks_among_all_pairs_are_those_of_a_loop(symmetric: bool) -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(*rng.integers(0, 30, (2, 80)), 30)
    if symmetric:
        graph = graph.symmetrise()
    data = Dataset("random", graph, rng.normal(size=(30, 4)), np.zeros(30, int))
    links = LinkPrediction(test_fraction=0.3).split(data).test
    rows = rng.integers(0, 3, (30, 2)).astype(np.float32)  # with ties
    edges, expected = _edges(graph), []
    joined = [(s, t) for s, t, label in zip(*(part.tolist() for part in links), strict=True) if label]
    for source, target in joined + ([(t, s) for s, t in joined] if symmetric else []):
        mine = rows[source] @ rows[target]
        others = [
            rows[source] @ rows[other]
            for other in range(30)
            if other not in (source, target) and (source, other) not in edges
        ]
        expected.append(1 + sum(score > mine for score in others) + sum(score == mine for score in others) / 2)
    for block in (7, 1000):
        found = rank_among_all(rows, links, graph, block=block)
        assert found.ranks.tolist() == expected
    assert found.mrr == pytest.approx(np.mean(1 / np.array(expected)))
    assert found.hits_at(5) == pytest.approx(np.mean(np.array(expected) <= 5))


@pytest.mark.skipif("DORYLAX_DATA" not in os.environ, reason="needs cora")
def test_the_published_recipe_on_cora() -> None:
    """Kipf & Welling report 91.0 for the graph auto-encoder, on another split."""
    data = dorylax.load("cora").row_normalised()
    model = GCN(data.num_features, 32, 16, dropout=0.0, rngs=nnx.Rngs(0))
    result = Trainer(model, data, task=LinkPrediction(), optimizer=optax.adam(0.01), epochs=200, eval_every=5).fit()
    assert result.test_score is not None
    assert result.test_score > 0.88


def test_each_epoch_is_trained_on_the_pairs_that_were_drawn_for_it() -> None:
    task = LinkPrediction()
    trainer = _trainer(task, optimizer=optax.sgd(0.0), epochs=3, seed=5)
    examples = task.prepare(DATA)
    rows = np.asarray(trainer.model(examples.graph, jnp.asarray(DATA.features)))
    train, losses = examples.train_mask, [record.loss for record in trainer.fit().history]
    expected = []
    for epoch in range(3):
        sources, targets = task.redraw(examples, 5, epoch)["link_pairs"][train].T
        signs = 2 * examples.labels[train] - 1
        expected.append(np.log1p(np.exp(-signs * (rows[sources] * rows[targets]).sum(axis=1))).mean())
    assert losses == pytest.approx(expected, rel=1e-5)
    assert len(set(losses)) == 3
