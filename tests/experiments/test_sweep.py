"""Sweep files: what they expand to, and what each mistake says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.config import ConfigError
from dorylax.config.strict_yaml import parse
from dorylax.experiments.sweep import Sweep, expand, load

_CONFIGS = Path(__file__).parent.parent.parent / "experiments" / "configs"


def _expand(text: str) -> Sweep:
    return expand(parse(text, "s.yaml"), "s")


def test_the_product_in_order_with_seeds_fastest() -> None:
    sweep = _expand(
        "description: >\n  two\n  lines\nbase:\n  train: {epochs: 3}\n"
        "grid:\n  model.name: [gcn, mlp]\n  model.dropout: [0.0, 0.5]\nseeds: [5, 1]\n"
    )
    found = [(run.config.model.name, run.config.model.dropout, run.config.train.seed) for run in sweep.runs]
    settings = [("gcn", 0.0), ("gcn", 0.5), ("mlp", 0.0), ("mlp", 0.5)]
    assert found == [(*setting, seed) for setting in settings for seed in (5, 1)]
    assert {run.config.train.epochs for run in sweep.runs} == {3}
    assert sweep.axes == ("model.name", "model.dropout")
    assert sweep.description == "two lines"
    assert sweep.runs[0].label == "model.name=gcn, model.dropout=0.0, train.seed=5"
    assert len({run.key for run in sweep.runs}) == 8


def test_seeds_may_be_a_number_or_left_away() -> None:
    assert [run.config.train.seed for run in _expand("grid: {model.name: [gcn]}\nseeds: 3\n").runs] == [0, 1, 2]
    assert [run.config.train.seed for run in _expand("grid: {model.name: [gcn]}\n").runs] == [0]
    assert [run.config.train.seed for run in _expand("base: {train.seed: 4}\ngrid: {model.name: [gcn]}\n").runs] == [4]


@pytest.mark.parametrize("path", sorted(_CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_sweeps_are_valid(path: Path) -> None:
    sweep = load(path)
    assert sweep.name == path.stem
    assert sweep.runs
    assert sweep.description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.yaml: a sweep has the parts description, base, grid, seeds, got null"),
        ("- 1\n", "s.yaml:1: a sweep has the parts description, base, grid, seeds, got [1]"),
        ("gird: {}\n", "s.yaml:1: unknown part 'gird' of a sweep: did you mean grid?"),
        (
            "seeds: 3\ngrid: {}\n",
            "s.yaml:2: grid must hold at least one key with a list of values, "
            "as in `model.name: [gcn, gat]`, got nothing",
        ),
        (
            "seeds: 3\n",
            "s.yaml:1: grid must hold at least one key with a list of values, "
            "as in `model.name: [gcn, gat]`, got nothing",
        ),
        ("grid:\n  model.name: []\n", "s.yaml:2: model.name must have a list of at least one value, got []"),
        ("grid:\n  model.name: gcn\n", "s.yaml:2: model.name must have a list of at least one value, got 'gcn'"),
        ("grid:\n  model.nam: [gcn]\n", "s.yaml:2: unknown key 'model.nam': did you mean model.name?"),
        (
            "grid:\n  model.name:\n    - gcn\n    - gnc\n",
            "s.yaml:4: unknown model.name 'gnc': did you mean sgc or gin or gcn?",
        ),
        (
            "base:\n  model.name: gnc\ngrid:\n  model.dropout: [0.1]\n",
            "s.yaml:2: unknown model.name 'gnc': did you mean sgc or gin or gcn?",
        ),
        ("grid:\n  model.name:\n    - gcn\n    - gcn\n", "s.yaml:4: model.name lists 'gcn' twice"),
        ("grid:\n  model.name: [gcn]\n  model.name: [gat]\n", "s.yaml:3: model.name is given twice (first on line 2)"),
        (
            "grid:\n  train.epochs:\n    - 5\n    - 0\n",
            "s.yaml:4: train.epochs must be ≥ 1, got 0",
        ),
        ("base:\n  train:\n    epochs: x\n", "s.yaml:3: train.epochs must be a whole number ≥ 1, got 'x'"),
        ("base: 3\n", "s.yaml:1: base must hold keys such as train.epochs, got 3"),
        (
            "base:\n  model.dropout: 0.1\ngrid:\n  model.dropout: [0.2]\n",
            "s.yaml:4: model.dropout is in base and in grid: take it out of one",
        ),
        ("grid:\n  train.seed: [1, 2]\n", "s.yaml:2: train.seed is not for the grid: list seeds under `seeds`"),
        (
            "base: {train.seed: 1}\ngrid:\n  model.name: [gcn]\nseeds: 2\n",
            "s.yaml:4: seeds and train.seed in base exclude each other: take one away",
        ),
        (
            "grid: {model.name: [gcn]}\nseeds: 0\n",
            "s.yaml:2: seeds must be a whole number ≥ 1 or a list of seeds, got 0",
        ),
        (
            "grid: {model.name: [gcn]}\nseeds: true\n",
            "s.yaml:2: seeds must be a whole number ≥ 1 or a list of seeds, got true",
        ),
        ("grid: {model.name: [gcn]}\nseeds: [1, 1]\n", "s.yaml:2: seeds lists 1 twice"),
        ("grid: {model.name: [gcn]}\nseeds: [-1]\n", "s.yaml:2: train.seed must be ≥ 0 and < 2147483648, got -1"),
        ("grid: {model.name: [gcn]}\ndescription: 3\n", "s.yaml:2: description must be text, got 3"),
        (
            "grid:\n  model.name: [gat, gcn]\n  model.heads: [2]\n",
            "s.yaml:3: model.heads is not an option of model gcn, whose options are "
            "hidden_features, num_layers, dropout, norm, residual, jk",
        ),
        (
            "grid:\n  optimizer.learning_rate: [1, 1.0]\n",
            "s.yaml:2: optimizer.learning_rate lists 1.0 twice",
        ),
    ],
)
def test_mistakes_say_file_line_value_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _expand(text)
    assert str(caught.value) == message


def test_the_same_run_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cannot happen while every key changes the identity, so the identity is broken here."""
    from dorylax.config import RunConfig

    monkeypatch.setattr(RunConfig, "key", lambda self: self.model.name)
    with pytest.raises(ConfigError) as caught:
        _expand("grid:\n  model.dropout: [0.1, 0.2]\n")
    assert str(caught.value) == (
        "s.yaml:1: (model.dropout=0.2, train.seed=0) is the same run as (model.dropout=0.1, train.seed=0): "
        "take one away"
    )


def test_pipelines_are_axes_like_others() -> None:
    sweep = _expand(
        "base: {pipeline.mode: async}\ngrid: {pipeline.staleness: [0, 1], pipeline.update: [per_epoch, null]}\n"
    )
    found = [(run.config.pipeline.staleness, run.config.pipeline.update) for run in sweep.runs if run.config.pipeline]
    assert found == [(0, "per_epoch"), (0, "per_interval"), (1, "per_epoch"), (1, "per_interval")]
    assert len({run.key for run in sweep.runs}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "base: {pipeline.servers: 2}\ngrid:\n  pipeline.staleness: [0, 1]\n",
            "s.yaml:3: pipeline.staleness = 0 needs pipeline.mode=async",
        ),
        (
            "base:\n  single.optimize: false\ngrid: {pipeline.servers: [2]}\n",
            "s.yaml:2: single.optimize=false and pipeline.servers exclude each other",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_is_found_in_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _expand(text)
    assert str(caught.value).startswith(message)
