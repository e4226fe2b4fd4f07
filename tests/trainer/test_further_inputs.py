"""Inputs by name, losses of one's own, and where Linen modules and functions keep their parameters."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from dorylax import ops
from dorylax.errors import InputError
from dorylax.graph.dataset import Dataset
from dorylax.observers.progress import describe_summary
from dorylax.store import metrics
from dorylax.trainer import Trainer, TrainingError


@pytest.fixture
def rich(data: Dataset) -> Dataset:
    V, E = data.graph.num_vertices, data.graph.num_edges
    rng = np.random.default_rng(0)
    return dataclasses.replace(
        data,
        vertex_inputs={"pos": rng.random((V, 2)).astype(np.float32), "age": rng.random(V).astype(np.float32)},
        edge_inputs={"edge_weight": rng.random(E).astype(np.float32)},
    )


@pytest.fixture
def targets(data: Dataset) -> Dataset:
    values = np.random.default_rng(0).random(data.graph.num_vertices).astype(np.float32)
    return dataclasses.replace(data, labels=values, num_classes=None)


def linear(params: Any, graph: Any, x: Any) -> Any:
    return x @ params["w"]


def weights(data: Dataset, columns: int = 3) -> dict[str, np.ndarray]:
    return {"w": np.full((data.num_features, columns), 0.1, np.float32)}


def make(model: Any, data: Dataset, **options: Any) -> Trainer:
    return Trainer(model, data, **{"optimizer": optax.adam(0.05), "epochs": 3, **options})


class Keywords(nnx.Module):
    """Takes what its subclass's call says, and remembers which inputs came."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.leave = nnx.Linear(6, 3, rngs=rngs)


class Some(Keywords):
    def __call__(self, graph: Any, x: Any, pos: Any = None, *, absent: Any = 0.0) -> Any:
        assert pos.shape[1:] == (2,)
        assert absent == 0.0
        return self.leave(x) + pos[:, :1]


class Every(Keywords):
    def __call__(self, graph: Any, x: Any, **inputs: Any) -> Any:
        assert set(inputs) == {"pos", "age", "edge_weight"}
        return self.leave(x) + inputs["age"][:, None]


class Needs(Keywords):
    def __call__(self, graph: Any, x: Any, pos: Any, *, colour: Any) -> Any:
        return self.leave(x)


class Ids(Keywords):
    def __call__(self, graph: Any, x: Any) -> Any:
        return self.leave(x) + ops.vertex_ids(graph)[:, None].astype(x.dtype) / 100


@pytest.mark.parametrize("model", [Some, Every, Ids])
@pytest.mark.parametrize("optimize", [True, False])
def test_a_model_gets_what_its_signature_takes(rich: Dataset, model: Any, optimize: bool) -> None:
    runner = make(model(nnx.Rngs(0)), rich, optimize=optimize)
    result = runner.fit()
    assert (result.passes is None) != optimize
    runner.model.eval()
    inputs = rich.vertex_inputs | rich.edge_inputs if model is Every else {}
    inputs = {"pos": rich.vertex_inputs["pos"]} if model is Some else inputs
    given = {name: jnp.asarray(value) for name, value in inputs.items()}
    direct = runner.model(rich.graph, jnp.asarray(rich.features), **given)
    np.testing.assert_allclose(runner.predict(), direct, atol=1e-5)


def test_an_input_that_is_needed_and_not_there_is_one_line(rich: Dataset, data: Dataset) -> None:
    with pytest.raises(
        ValueError, match=r"Needs needs the input 'colour', and the data set has age, edge_weight, pos"
    ) as told:
        make(Needs(nnx.Rngs(0)), rich)
    assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match=r"Needs needs the input 'pos', and the data set has none"):
        make(Needs(nnx.Rngs(0)), data)


def test_further_inputs_are_part_of_the_run(rich: Dataset, tmp_path: Any) -> None:
    options = {"run_directory": tmp_path, "resume": True}
    make(Some(nnx.Rngs(0)), rich, **options).fit()
    assert make(Some(nnx.Rngs(0)), rich, epochs=4, **options).fit().first_epoch == 3
    unread = dataclasses.replace(rich, vertex_inputs=rich.vertex_inputs | {"age": rich.vertex_inputs["age"] + 1})
    assert make(Some(nnx.Rngs(0)), unread, epochs=5, **options).fit().first_epoch == 4
    other = dataclasses.replace(rich, vertex_inputs=rich.vertex_inputs | {"pos": rich.vertex_inputs["pos"] + 1})
    with pytest.raises(InputError, match=r"data\.inputs\.pos"):
        make(Some(nnx.Rngs(0)), other, epochs=6, **options).fit()


class Normed(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any, train: bool) -> Any:
        x = linen.BatchNorm(use_running_average=not train)(linen.Dense(4)(x))
        return linen.Dense(3)(linen.Dropout(0.5, deterministic=not train)(x))


@pytest.mark.filterwarnings("ignore:.*cannot be split into graph tasks and stages:UserWarning")
def test_a_linen_module_begins_as_it_is_initialised(data: Dataset) -> None:
    module = Normed()
    keys = {"params": jax.random.key(7), "dropout": jax.random.key(0)}
    wanted = module.init(keys, data.graph, data.features, train=True)
    runner = make(module, data, seed=7)
    jax.tree.map(np.testing.assert_allclose, runner._parts.params, wanted["params"])
    result = runner.fit()
    mean = result.state["batch_stats"]["BatchNorm_0"]["mean"]
    assert np.abs(mean).max() > 0
    variables = {"params": result.params, **result.state}
    np.testing.assert_allclose(
        runner.predict(), module.apply(variables, data.graph, data.features, train=False), atol=1e-5
    )


@pytest.mark.filterwarnings("ignore:.*cannot be split into graph tasks and stages:UserWarning")
def test_a_linen_modules_parameters_may_be_given(data: Dataset) -> None:
    module = Normed()
    first = make(module, data).fit()
    bare = make(module, data, params=first.params)
    jax.tree.map(np.testing.assert_array_equal, bare._parts.params, first.params)
    assert np.abs(bare._parts.state["batch_stats"]["BatchNorm_0"]["mean"]).max() == 0
    whole = make(module, data, params={"params": first.params, **first.state})
    jax.tree.map(np.testing.assert_array_equal, whole._parts.state, first.state)
    wrong = first.params | {"Dense_0": {"kernel": np.ones((5, 4)), "bias": np.ones(4)}}
    with pytest.raises(
        TypeError, match=r"params of Normed: params\['Dense_0'\]\['kernel'\] must be \[6, 4\], got \[5, 4\]"
    ):
        make(module, data, params=wrong)
    with pytest.raises(TypeError, match=r"params of Normed: more must be nothing|params of Normed: more\['a'\]"):
        make(module, data, params={"params": first.params, "more": {"a": np.ones(2)}})


def test_a_functions_parameters_are_in_the_result_and_stay_the_users(data: Dataset) -> None:
    params = weights(data)
    runner = make(linear, data, params=params)
    result = runner.fit()
    np.testing.assert_array_equal(params["w"], weights(data)["w"])
    np.testing.assert_allclose(runner.predict(), data.features @ result.params["w"], atol=1e-5)
    assert runner.fit().history[0].loss == result.history[0].loss


def test_parameters_beside_a_model_that_holds_its_own(data: Dataset) -> None:
    with pytest.raises(TypeError, match=r"params= is for Linen modules and functions: Ids holds its own"):
        make(Ids(nnx.Rngs(0)), data, params=weights(data))
    with pytest.raises(ValueError, match="model linear has no parameters: give params="):
        make(linear, data)


def test_a_model_in_evaluation_mode_is_warned_of(data: Dataset, net: Any) -> None:
    model = net(rngs=nnx.Rngs(0))
    model.eval()
    with pytest.warns(UserWarning, match="Net is in evaluation mode, and trains without its dropout of rate 0.5"):
        make(model, data)


class FrozenNorm(nnx.Module):
    def __init__(self) -> None:
        self.norm = nnx.BatchNorm(6, use_running_average=True, rngs=nnx.Rngs(0))
        self.leave = nnx.Linear(6, 3, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.leave(self.norm(x))


@pytest.mark.parametrize("optimize", [True, False])
def test_frozen_statistics_stay_and_the_model_splits(data: Dataset, optimize: bool) -> None:
    result = make(FrozenNorm(), data, optimize=optimize).fit()
    assert (result.passes is None) != optimize
    np.testing.assert_array_equal(result.state["norm"]["mean"], np.zeros(6))


def test_losses_of_the_wrong_form_are_refused_before_anything_runs(data: Dataset, targets: Dataset) -> None:
    with pytest.raises(
        ValueError, match=r"loss must be one of cross_entropy, mse, mae, huber, .* or a function, got 'hinge'"
    ):
        make(linear, data, params=weights(data), loss="hinge")
    with pytest.raises(
        ValueError, match=r"loss=cross_entropy needs classes, .* give loss= one of mse, mae, huber, or a function"
    ):
        make(linear, targets, params=weights(data), loss="cross_entropy")
    with pytest.raises(ValueError, match=r"must give one number per vertex, shape \[V\] = \[48\], got float32 \[\]"):
        make(linear, data, params=weights(data), loss=lambda output, labels: output.mean())
    with pytest.raises(TypeError, match="must give real numbers, got bool"):
        make(linear, data, params=weights(data), loss=lambda output, labels: output[:, 0] > 0)
    with pytest.raises(ValueError, match=r"must return one number for each target, got \[48, 3\] for targets \[48\]"):
        make(linear, targets, params=weights(data), loss="mse")
    with pytest.raises(
        ValueError, match=r"train\.target_accuracy = 0\.5 needs an accuracy, and .* its loss: give train\.target"
    ):
        make(linear, targets, params=weights(data, 1), loss="mse", target_accuracy=0.5)
    with pytest.raises(TypeError, match=r"give loss=, a function of what it returns"):
        make(lambda params, graph, x: {"a": x @ params["w"]}, data, params=weights(data))


@pytest.mark.parametrize("name", ["mse", "mae"])
def test_a_column_may_be_the_only_target(targets: Dataset, name: str) -> None:
    """[V, 1] against [V] is never broadcast."""
    result = make(linear, targets, params=weights(targets, 1), loss=name).fit()
    difference = (targets.features @ weights(targets, 1)["w"])[:, 0] - targets.labels
    rows = difference**2 if name == "mse" else np.abs(difference)
    assert result.history[0].loss == pytest.approx(rows[targets.train_mask].mean(), rel=1e-5)


def test_a_run_without_accuracy_says_so_everywhere(targets: Dataset, tmp_path: Any) -> None:
    options = {"params": weights(targets, 1), "loss": "mse", "run_directory": tmp_path, "eval_every": 2, "resume": True}
    result = make(linear, targets, epochs=4, **options).fit()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["metric"] == "loss"
    assert (summary["val_accuracy"], summary["test_accuracy"]) == (None, None)
    assert (summary["val_loss"], summary["test_loss"]) == (result.val_loss, result.test_loss)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("val_loss") for line in lines] == [record.val_loss for record in result.history]
    assert {line["val_accuracy"] for line in lines} == {None}
    assert metrics.read(tmp_path / "metrics.jsonl") == result.history
    assert "accuracy" not in describe_summary(result.summary())
    assert f"validation loss {result.val_loss:.4f} (epoch {result.best_epoch})" in describe_summary(result.summary())
    assert make(linear, targets, epochs=6, **options).fit().first_epoch == 4
    with pytest.raises(Exception, match=r"train\.loss"):
        make(linear, targets, epochs=8, **{**options, "loss": "mae"}).fit()


def test_patience_and_the_best_epoch_go_by_the_validation_loss(targets: Dataset) -> None:
    result = make(
        linear, targets, params=weights(targets, 1), loss="mse", optimizer=optax.sgd(-0.02), epochs=9, patience=2
    ).fit()
    assert (result.stopped, result.best_epoch, len(result.history)) == ("patience", 0, 3)
    np.testing.assert_array_equal(result.history[0].val_loss, result.val_loss)


def test_a_loss_that_is_not_finite_ends_the_run(targets: Dataset) -> None:
    """Finite outputs and an infinite loss: of the evaluation's vertices alone, too."""

    def loss(output: Any, labels: Any) -> Any:
        return jnp.where(labels < 0, jnp.inf, (output[:, 0] - labels) ** 2)

    labels = np.where(targets.val_mask, -1, targets.labels).astype(np.float32)
    with pytest.raises(TrainingError, match="loss is not finite or outputs are NaN after the update of epoch 0"):
        make(linear, dataclasses.replace(targets, labels=labels), params=weights(targets, 1), loss=loss).fit()


def test_without_masks_all_vertices_train(targets: Dataset) -> None:
    data = Dataset("targets", targets.graph, targets.features, targets.labels)
    result = make(functools.partial(linear), data, params=weights(data, 1), loss="mse").fit()
    assert (result.val_loss, result.best_epoch) == (None, 2)
    assert result.history[-1].train_loss is not None
