"""Targets of vertices: on one machine and in pipelines, beside jax.grad; what they are judged by; what stops a run."""

from __future__ import annotations

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dorylax
from dorylax.errors import InputError
from dorylax.graph.dataset import Dataset
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.tasks import VertexPrediction
from dorylax.trainer import Trainer

BASE = dorylax.load("communities", size="tiny")


def _data(width: tuple[int, ...] = ()) -> Dataset:
    rng = np.random.default_rng(0)
    targets = np.tanh(BASE.features @ rng.normal(size=(BASE.num_features, *(width or (1,)))))
    targets = targets.astype(np.float32).reshape(len(targets), *width)
    return Dataset("targets", BASE.graph, BASE.features, targets, None, BASE.train_mask, BASE.val_mask, BASE.test_mask)


def _trainer(data: Dataset, **options: Any) -> Trainer:
    width = data.labels.shape[1] if data.labels.ndim > 1 else 1
    model = GCN(data.num_features, 8, width, dropout=0.0, rngs=nnx.Rngs(0))
    return Trainer(model, data, **{"optimizer": optax.adam(0.01), "epochs": 4, **options})


LOSSES = {
    "mse": jnp.square,
    "mae": jnp.abs,
    "huber": lambda d: jnp.where(jnp.abs(d) <= 1, d**2 / 2, jnp.abs(d) - 0.5),
}


@pytest.mark.parametrize("pipeline", [None, PipelineConfig(mode="pipe", servers=2, intervals=2)])
@pytest.mark.parametrize("width", [(), (3,)])
@pytest.mark.parametrize("loss", LOSSES)
def test_one_step_is_the_gradient_of_the_loss(loss: str, width: tuple[int, ...], pipeline: Any) -> None:
    data = _data(width)
    trainer = _trainer(data, loss=loss, optimizer=optax.sgd(0.5), epochs=1, metric="rmse", pipeline=pipeline)
    graphdef, start, rest = nnx.split(trainer.model, nnx.Param, ...)

    def objective(params: Any) -> Any:
        rows = nnx.merge(graphdef, params, rest)(data.graph, jnp.asarray(data.features)).reshape(data.labels.shape)
        return LOSSES[loss](rows - data.labels)[data.train_mask].mean()

    value, gradient = jax.value_and_grad(objective)(start)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, start, gradient)
    result = trainer.fit()
    assert result.final_loss == pytest.approx(float(value), rel=1e-4)
    for mine, theirs in zip(jax.tree.leaves(result.last_params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    outputs = trainer.predict("last").reshape(data.labels.shape)
    rmse = math.sqrt(np.square(outputs - data.labels)[data.test_mask].mean())
    assert result.test_score == pytest.approx(rmse, rel=1e-4)


def test_targets_are_minimised_by_the_mean_square_unless_told_otherwise(tmp_path: Any) -> None:
    result = _trainer(_data(), metric="mae", run_directory=tmp_path / "run").fit()
    assert result.history[-1].loss < result.history[0].loss
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metric"] == "mae"
    assert summary["val_score"] == result.val_score
    assert summary["val_accuracy"] is None


def test_the_least_error_is_the_best_epoch_and_the_target() -> None:
    whole = _trainer(_data(), metric="mae", epochs=20).fit()
    errors = [record.score("val") for record in whole.history]
    assert whole.best_epoch == int(np.argmin(errors))
    stopped = _trainer(_data(), metric="mae", epochs=20, target=errors[5]).fit()
    assert stopped.stopped == "target"
    assert len(stopped.history) == 1 + next(i for i, error in enumerate(errors) if error <= errors[5])


def test_patience_counts_from_the_best_score() -> None:
    # Nothing improves at such a rate.
    result = _trainer(_data(), metric="r2", epochs=50, patience=3, optimizer=optax.sgd(1e-12)).fit()
    assert result.stopped == "patience"


def test_resuming_with_another_metric_is_refused_and_with_another_target_is_not(tmp_path: Any) -> None:
    run = tmp_path / "run"
    _trainer(_data(), metric="mae", run_directory=run).fit()
    with pytest.raises(dorylax.DorylaxError, match=r"train\.metric"):
        _trainer(_data(), metric="rmse", epochs=6, run_directory=run, resume=True).fit()
    assert len(_trainer(_data(), metric="mae", epochs=6, target=0.0, run_directory=run, resume=True).fit().history) == 6


def test_hosts_in_processes_judge_targets_and_refuse_what_ranks() -> None:
    hosts = PipelineConfig(mode="pipe", servers=2, intervals=1, hosts="processes")
    with pytest.raises(InputError, match=r"needs the outputs of all vertices at once, and with pipeline\.hosts = proc"):
        _trainer(_data(), metric="r2", pipeline=hosts)
    result = _trainer(_data((2,)), metric="rmse", epochs=2, pipeline=hosts).fit()
    inline = _trainer(_data((2,)), metric="rmse", epochs=2).fit()
    assert result.test_score == pytest.approx(inline.test_score, rel=1e-4)


def test_a_metric_that_ranks_in_a_pipeline_of_one_process() -> None:
    model = GCN(BASE.num_features, 8, BASE.num_classes or 1, dropout=0.0, rngs=nnx.Rngs(0))
    pipeline = PipelineConfig(mode="pipe", servers=2, intervals=2)
    trainer = Trainer(model, BASE, metric="roc_auc", optimizer=optax.adam(0.01), epochs=3, pipeline=pipeline)
    assert 0.4 < (trainer.fit().val_score or 0) <= 1


@pytest.mark.parametrize("of", ["classes", "targets"])
def test_labels_must_be_what_is_said(of: Any) -> None:
    wrong = _data() if of == "classes" else BASE
    with pytest.raises(
        InputError, match="classification needs classes" if of == "classes" else "regression needs targets"
    ):
        VertexPrediction(of).prepare(wrong)
    right = BASE if of == "classes" else _data()
    assert VertexPrediction(of).prepare(right) is right


def test_no_validation_no_metric() -> None:
    data = _data()
    empty = Dataset("targets", data.graph, data.features, data.labels, None, data.train_mask)
    result = _trainer(empty, metric="mae").fit()
    assert result.val_score is None
    assert result.best_epoch == 3
