from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import dorylax
from dorylax.config import RunConfig
from dorylax.errors import InputError
from dorylax.program.model.flax_nnx import take_apart
from dorylax.runs.directory import RunDirectory
from dorylax.trainer import Trainer, from_config, prepare_data
from dorylax.trainer.from_config import abstract_model, build_optimizer

SMALL = {"data.name": "communities", "data.size": "tiny", "train.epochs": 3}


def test_configuration_to_run_directory(tmp_path):
    config = RunConfig.resolve({**SMALL, "model.name": "gcn", "train.seed": 4})
    trainer = Trainer.from_config(config, run_directory=tmp_path)
    result = trainer.fit()
    assert len(result.history) == 3
    assert RunDirectory.open(tmp_path).config == config.to_dict()
    assert RunConfig.load(tmp_path / "config.yaml") == config
    assert RunDirectory.open(tmp_path).summary["seed"] == 4
    # As `dorylax predict --run DIR` does it.
    again = Trainer.from_config(RunConfig.load(tmp_path / "config.yaml"), trainer.data, run_directory=tmp_path)
    np.testing.assert_array_equal(again.predict(), trainer.predict())


def test_seed_sets_parameters_and_dropout():
    data = prepare_data(RunConfig.resolve(SMALL).data)

    def run(seed):
        config = RunConfig.resolve({**SMALL, "model.name": "mlp", "train.seed": seed})
        return Trainer.from_config(config, data).fit()

    first, second, again = run(0), run(1), run(0)
    assert first.final_loss == again.final_loss
    assert first.final_loss != second.final_loss
    assert again.timings.compile == 0


def test_the_reference_step(tmp_path):
    config = RunConfig.resolve({**SMALL, "model.name": "mlp", "single.optimize": False})
    result = Trainer.from_config(config, run_directory=tmp_path).fit()
    run = RunDirectory.open(tmp_path)
    assert result.passes is None
    assert run.summary["passes"] is None
    written = {"optimize": False, "order": "auto", "gathered": "float32", "memory": "check"}
    assert run.config["single"] == written | {"memory_limit": None, "scratch": None}


def test_row_normalisation_is_prepared_once():
    rows = {flag: prepare_data(RunConfig.resolve({**SMALL, "data.row_normalise": flag}).data) for flag in (False, True)}
    np.testing.assert_array_equal(rows[True].features, rows[False].row_normalised().features)
    config = RunConfig.resolve({**SMALL, "model.name": "mlp", "data.row_normalise": True})
    assert Trainer.from_config(config, rows[False]).data is rows[False]


def test_equal_sections_share_an_optimizer():
    one, two = (RunConfig.resolve({**SMALL, "train.seed": seed}) for seed in (0, 1))
    other = RunConfig.resolve({**SMALL, "optimizer.learning_rate": 0.5})
    assert build_optimizer(one) is build_optimizer(two)
    assert build_optimizer(one) is not build_optimizer(other)


@pytest.mark.parametrize("width", [1, 3])
def test_the_model_is_as_wide_as_the_targets(width):
    data = prepare_data(RunConfig.resolve(SMALL).data)
    labels = data.features[:, 0] if width == 1 else data.features[:, :3]
    targets = dataclasses.replace(data, labels=labels, num_classes=None)
    config = RunConfig.resolve({**SMALL, "model.name": "gcn", "train.loss": "huber", "train.metric": "mae"})
    trainer = Trainer.from_config(config, targets)
    assert trainer.fit().metric == "mae"
    assert trainer.predict().shape == (data.graph.num_vertices, width)


def test_a_task_says_what_labels_must_be():
    data = prepare_data(RunConfig.resolve(SMALL).data)
    with pytest.raises(InputError, match="regression needs targets, and the labels of communities are 4 classes"):
        Trainer.from_config(RunConfig.resolve({**SMALL, "model.name": "gcn", "task.name": "vertex-regression"}), data)


RNGS = nnx.Rngs(0)


class Own(nnx.Module):
    """A model whose constructor does what abstract arrays may not allow."""

    def __init__(self, kind: str) -> None:
        self.dense = nnx.Linear(2, 3, rngs=RNGS if kind == "random streams from outside" else nnx.Rngs(1))
        self.table = nnx.Variable(jnp.ones(3))
        kernel = self.dense.kernel[...]
        if kind == "values" and kernel[0, 0] == 7:
            raise AssertionError
        if kind == "masks" and kernel[kernel > 7].size:
            raise AssertionError
        if kind == "NumPy":
            np.linalg.norm(kernel)

    def __call__(self, graph: object, x: jax.Array) -> jax.Array:
        return self.dense(x) + self.table[...]


def given():
    return RunConfig.resolve(SMALL), dorylax.load("communities", size="tiny")


@pytest.mark.parametrize(
    ("kind", "abstract"),
    [("shapes", True), ("values", False), ("masks", False), ("NumPy", False), ("random streams from outside", False)],
)
def test_abstract_models_have_the_shapes_of_real_ones(
    monkeypatch: pytest.MonkeyPatch, kind: str, abstract: bool
) -> None:
    monkeypatch.setattr(from_config, "build_model", lambda *_: Own(kind))
    found, real = take_apart(abstract_model(*given())), take_apart(Own(kind))
    assert found.structure == real.structure
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) is abstract for leaf in jax.tree.leaves(found.params))
    for part in ("params", "streams", "state"):
        shapes = functools.partial(jax.tree.map, lambda leaf: (leaf.shape, leaf.dtype))
        assert shapes(getattr(found, part)) == shapes(getattr(real, part))


def test_a_fault_of_the_class_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_config, "build_model", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        abstract_model(*given())
