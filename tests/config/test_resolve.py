"""The configuration: defaults from recipes, precedence, identity, and what each wrong value says."""

from __future__ import annotations

from typing import Any

import pytest

from dorylax.config import ConfigError, RunConfig
from dorylax.config.optimizers import OPTIMIZERS
from dorylax.config.schema import KEYS, ModelConfig
from dorylax.layers.registry import MODELS
from dorylax.pipeline.config import PipelineConfig


@pytest.mark.parametrize("model", list(MODELS))
def test_defaults_are_the_published_recipe(model: str) -> None:
    resolved = RunConfig.resolve({"model.name": model, "data.name": "cora"}).dotted()
    recipe = MODELS[model].recipe
    assert {key: resolved[key] for key in recipe} == dict(recipe)
    assert {key for key in resolved if key.startswith("model.")} == {
        "model.name",
        *(f"model.{option}" for option in MODELS[model].options),
    }


def test_schema_knows_what_the_registry_asks_for() -> None:
    options = {option for spec in MODELS.values() for option in spec.options}
    assert options == set(ModelConfig.model_fields) - {"name"}
    assert {key for spec in MODELS.values() for key in spec.recipe} <= KEYS.keys()


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_every_optimizer_resolves_with_its_own_options(optimizer: str) -> None:
    section = RunConfig.resolve({"optimizer.name": optimizer}).to_dict()["optimizer"]
    shared = {"name", "learning_rate", "weight_decay", "weight_decay_on"}
    assert section.keys() == shared | OPTIMIZERS[optimizer].options.keys()


def test_later_wins() -> None:
    config = RunConfig.resolve({"train": {"epochs": 3, "seed": 4}}, {"train.epochs": 5})
    assert (config.train.epochs, config.train.seed) == (5, 4)


def test_an_explicit_null_beats_an_earlier_value() -> None:
    assert RunConfig.resolve({"train.patience": 100}).train.patience == 100
    assert RunConfig.resolve({"train.patience": 100}, {"train.patience": None}).train.patience is None


def test_a_whole_number_is_a_number() -> None:
    one = RunConfig.resolve({"optimizer.learning_rate": 1})
    assert type(one.optimizer.learning_rate) is float
    assert one.key() == RunConfig.resolve({"optimizer.learning_rate": 1.0}).key()


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_yaml_brings_it_back(model: str, optimizer: str) -> None:
    config = RunConfig.resolve({"model.name": model, "optimizer.name": optimizer, "optimizer.learning_rate": 1e-7})
    again = RunConfig.from_yaml(config.to_yaml())
    assert again == config
    assert again.key() == config.key()
    assert RunConfig.resolve(config.to_dict()) == config


def test_key_is_the_identity() -> None:
    base = RunConfig.resolve()
    assert base.key() == RunConfig.resolve({"train.epochs": 200, "model.name": "gcn"}).key()
    others = [{"train.seed": 1}, {"model.dropout": 0.25}, {"data.name": "cora"}, {"train.target_accuracy": 0.5}]
    assert len({base.key(), *(RunConfig.resolve(other).key() for other in others)}) == 5
    assert len(base.key()) == 12
    assert set(base.key()) <= set("0123456789abcdef")


def test_key_does_not_know_of_nulls() -> None:
    """So that a key that is added later, null by default, does not make old runs new."""
    config = RunConfig.resolve()
    assert "train.patience" in config.dotted()
    without = config.model_copy(update={"train": config.train.model_copy()})
    assert without.key() == config.key()
    assert '"train.patience"' not in config.canonical_json()


def test_key_does_not_know_of_how_a_machine_computes_unless_told() -> None:
    config = RunConfig.resolve()
    assert config.single.optimize is True
    how = {"optimize": True, "order": "auto", "gathered": "float32", "memory": "check"}
    how |= {"memory_limit": None, "scratch": None}
    assert config.to_dict()["single"] == how
    assert "single" not in config.canonical_json()  # as before there was the section
    assert RunConfig.resolve({"single.optimize": False}).key() != config.key()
    assert RunConfig.resolve({"single.order": "given"}).key() != config.key()
    assert RunConfig.resolve({"single.gathered": "bfloat16"}).key() != config.key()
    assert RunConfig.resolve({"single.memory": "ignore"}).key() == config.key()
    assert RunConfig.resolve({"single.memory_limit": "8GiB", "single.scratch": "/tmp"}).key() == config.key()
    pipeline = RunConfig.resolve({"pipeline.mode": "pipe"})
    assert RunConfig.resolve({"pipeline.mode": "pipe", "pipeline.trace": "off"}).key() == pipeline.key()
    assert config.unverified() == RunConfig.resolve({"data.verify": False})
    assert config.unverified().key() == config.key()


@pytest.mark.parametrize("other", [{"single.optimize": False}, {"pipeline.servers": 2}, {"tensor.slots": 2}])
def test_rows_are_stored_otherwise_by_the_program_of_one_machine_alone(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"single\.gathered=bfloat16 and .* exclude each other"):
        RunConfig.resolve({"single.gathered": "bfloat16", **other})
    assert RunConfig.resolve({"single.gathered": "float32", **other}).single.gathered == "float32"


def test_without_a_key_of_its_own_there_is_no_pipeline() -> None:
    config = RunConfig.resolve()
    assert config.pipeline is None
    assert "pipeline" not in config.to_yaml()
    assert not any(key.startswith("pipeline") for key in config.dotted())
    assert config.key() == "bd75ddf3f0ae"  # as before there were pipelines


@pytest.mark.parametrize("given", [{"pipeline.servers": 1}, {"pipeline": {"staleness": None}}])
def test_any_key_of_it_makes_a_pipeline_with_all_keys(given: dict[str, object]) -> None:
    config = RunConfig.resolve(given)
    assert config.to_dict()["pipeline"] == PipelineConfig().to_dict()
    assert config.key() != RunConfig.resolve().key()
    assert '"pipeline.mode":"pipe"' in config.canonical_json()
    assert config.key() == RunConfig.resolve({"pipeline.mode": "pipe"}).key()


def test_a_pipeline_comes_back_from_its_file() -> None:
    given = {
        "pipeline.mode": "async",
        "pipeline.servers": 4,
        "pipeline.switch_margin": 0.1,
        "pipeline.update": "per_interval",
    }
    config = RunConfig.resolve({**given, "train.target_accuracy": 0.8})
    expected = PipelineConfig(mode="async", servers=4, staleness=1, update="per_interval", switch_margin=0.1)
    assert config.to_dict()["pipeline"] == expected.to_dict()
    assert RunConfig.from_yaml(config.to_yaml()) == config
    assert RunConfig.resolve(config.to_dict(), {"train.seed": 1}).pipeline == config.pipeline
    # What is no default is part of the identity, what is, is not, so that keys can be added.
    assert '"pipeline.servers":4' in config.canonical_json()
    assert "pipeline.intervals" not in config.canonical_json()


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        (
            {"pipeline.staleness": 1},
            "pipeline.staleness",
            "pipeline.staleness = 1 needs pipeline.mode=async, got pipe: change one of them",
        ),
        (
            {"pipeline.servers": 2, "single.optimize": False},
            "single.optimize",
            "single.optimize=false and pipeline.servers exclude each other: a pipeline runs the optimised program",
        ),
        (
            {"pipeline.mode": "async", "pipeline.switch_margin": 0.1},
            "pipeline.switch_margin",
            "pipeline.switch_margin = 0.1 needs train.target_accuracy, from which it is measured",
        ),
    ],
)
def test_pipelines_that_cannot_be(given: dict[str, object], key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.resolve(given)
    assert (str(caught.value), caught.value.key) == (message, key)


def test_a_number_in_quotes_is_text() -> None:
    """The other refusals are in tests/golden/snapshots/run.txt."""
    with pytest.raises(ConfigError, match=r"^optimizer\.learning_rate must be a number > 0, got '1e-2'$"):
        RunConfig.resolve({"optimizer.learning_rate": "1e-2"})


def test_options_of_the_recipes_optimizer_are_not_another_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from dorylax.config import resolve

    recipe = {"optimizer.name": "momentum", "optimizer.momentum": 0.8}
    monkeypatch.setattr(resolve, "_model", lambda name, code: resolve._OfModel({"dropout": 0.5}, recipe, "a paper"))
    assert RunConfig.resolve().optimizer.momentum == 0.8
    assert RunConfig.resolve({"optimizer.name": "sgd"}).optimizer.momentum is None


def test_a_limit_of_memory_is_of_one_machine() -> None:
    assert RunConfig.resolve({"single.memory_limit": "8GiB"}).single.limit is not None
    with pytest.raises(ConfigError, match=r"single\.memory_limit and pipeline\.mode.* exclude each other"):
        RunConfig.resolve({"single.memory_limit": "8GiB", "pipeline.mode": "pipe"})
    with pytest.raises(ConfigError, match=r"single\.memory=stream and pipeline\.mode.* exclude each other"):
        RunConfig.resolve({"single.memory": "stream", "pipeline.mode": "pipe"})
    with pytest.raises(ConfigError, match=r"single.memory_limit is wrong: expected an amount of memory such as 4GiB"):
        RunConfig.resolve({"single.memory_limit": "much"})
