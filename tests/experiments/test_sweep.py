"""Sweep files: what they expand to, and what each mistake says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.config import ConfigError, RunConfig
from dorylax.experiments.sweep import Comparison, Sweep, select
from dorylax.experiments.sweep_file import expand, one_setting, read
from dorylax.settings.strict_yaml import parse

_PARTS = "title, question, description, simulate, base, grid, zip, exclude, seeds, compare, published"
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
    assert sweep.runs[0].label == "gcn, dropout=0.0, seed 5"
    assert len({run.key for run in sweep.runs}) == 8


def test_seeds_may_be_a_number_or_omitted() -> None:
    assert [run.config.train.seed for run in _expand("grid: {model.name: [gcn]}\nseeds: 3\n").runs] == [0, 1, 2]
    assert [run.config.train.seed for run in _expand("grid: {model.name: [gcn]}\n").runs] == [0]
    assert [run.config.train.seed for run in _expand("base: {train.seed: 4}\ngrid: {model.name: [gcn]}\n").runs] == [4]


def test_nothing_but_seeds_is_one_setting() -> None:
    sweep = _expand("base: {train.epochs: 3}\nseeds: [5, 1]\nexclude: [{train.seed: 1}]\n")
    assert (sweep.axes, [run.label for run in sweep.runs]) == ((), ["gcn, seed 5"])
    given = {"data.size": "tiny", "optimizer.learning_rate": 1e-5, "train.patience": None, "train.seed": 7}
    sweep = one_setting("mine", given, range(7, 9))
    assert [run.config for run in sweep.runs] == [RunConfig.resolve(given, {"train.seed": seed}) for seed in (7, 8)]
    assert read(sweep.text, "mine.yaml", "mine") == sweep
    with pytest.raises(ConfigError, match=r"train\.seed must be ≥ 0 and < 2147483648, got 2147483648"):
        one_setting("mine", given, range(2**31 - 1, 2**31 + 1))
    text_that_looks_like_a_number = {"data.size": "1e6"}
    assert one_setting("mine", text_that_looks_like_a_number, [0]).runs[0].config.data.size == "1e6"
    with pytest.raises(ConfigError, match="compare needs a grid or a zip: only seeds vary here"):
        _expand("seeds: 3\ncompare: {baseline: {pipeline.mode: pipe}}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"s.yaml: a sweep has the parts {_PARTS}, got null"),
        ("- 1\n", f"s.yaml:1: a sweep has the parts {_PARTS}, got [1]"),
        ("gird: {}\n", "s.yaml:1: unknown part 'gird' of a sweep: did you mean grid?"),
        (
            "seeds: 3\ngrid: {}\n",
            "s.yaml:2: grid must hold at least one key with a list of values, "
            "as in `model.name: [gcn, gat]`, got nothing",
        ),
        (
            "base: {train.epochs: 3}\n",
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
        ("grid:\n  train.epochs:\n    - 5\n    - 0\n", "s.yaml:4: train.epochs must be ≥ 1, got 0"),
        ("base:\n  train:\n    epochs: x\n", "s.yaml:3: train.epochs must be a whole number ≥ 1, got 'x'"),
        ("base: 3\n", "s.yaml:1: base must hold keys such as train.epochs, got 3"),
        (
            "base:\n  model.dropout: 0.1\ngrid:\n  model.dropout: [0.2]\n",
            "s.yaml:4: model.dropout is in base and in grid: take it out of one",
        ),
        ("grid:\n  train.seed: [1, 2]\n", "s.yaml:2: train.seed is not for the grid: list seeds under `seeds`"),
        (
            "base: {train.seed: 1}\ngrid:\n  model.name: [gcn]\nseeds: 2\n",
            "s.yaml:4: seeds and train.seed in base exclude each other: remove one",
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
        ("grid: {model.name: [gcn]}\ntitle: 3\n", "s.yaml:2: title must be text, got 3"),
        (
            "zip:\n  model.name: [gcn, gat]\n  label: [one]\n",
            "s.yaml:3: values of zip go together, but model.name lists 2 and label lists 1",
        ),
        ("zip:\n  model.name: [gcn, gat]\n  label: [one, one]\n", "s.yaml:3: label lists 'one' twice"),
        (
            "zip:\n  model.name: [gcn, gat]\n  label: [1, 2]\n",
            "s.yaml:3: label must be a list of names, one for each value, got [1, 2]",
        ),
        ("zip:\n  label: [one]\n", "s.yaml:2: label names values of other keys: add one to this block"),
        (
            "grid:\n  model.name: [gat, gcn]\n  model.heads: [2]\n",
            "s.yaml:3: model.heads is not an option of model gcn, whose options are "
            "hidden_features, num_layers, dropout, norm, residual, jk",
        ),
        ("grid:\n  optimizer.learning_rate: [1, 1.0]\n", "s.yaml:2: optimizer.learning_rate lists 1.0 twice"),
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
    assert str(caught.value) == ("s.yaml:1: (dropout=0.2, seed 0) is the same run as (dropout=0.1, seed 0): remove one")


def test_pipelines_are_axes_like_others() -> None:
    sweep = _expand(
        "base: {pipeline.mode: async}\ngrid: {pipeline.staleness: [0, 1], pipeline.update: [null, per_interval]}\n"
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


# Zip, exclude, compare, only.

_STUDY = """\
grid: {model.name: [gcn, gat]}
zip:
  pipeline.mode: [pipe, async, async]
  pipeline.staleness: [null, 0, 1]
seeds: 2
"""


def _labels(sweep: Sweep) -> list[str]:
    return [run.label for run in sweep.runs]


def test_values_of_a_zip_go_together_and_come_after_the_grid() -> None:
    sweep = _expand(_STUDY)
    assert sweep.axes == ("model.name", "pipeline.mode", "pipeline.staleness")
    modes = ["pipe", "async S=0", "async S=1"]
    assert _labels(sweep) == [
        f"{model}, {mode}, seed {seed}" for model in ("gcn", "gat") for mode in modes for seed in (0, 1)
    ]
    assert sweep.runs[0].setting == {"model.name": "gcn", "pipeline.mode": "pipe", "pipeline.staleness": None}


def test_blocks_of_a_zip_are_crossed() -> None:
    sweep = _expand(
        "zip:\n  - {model.name: [gcn, gat], optimizer.learning_rate: [0.1, 0.2]}\n  - {train.epochs: [1, 2]}\n"
    )
    assert _labels(sweep) == [
        "gcn, learning_rate=0.1, epochs=1, seed 0",
        "gcn, learning_rate=0.1, epochs=2, seed 0",
        "gat, learning_rate=0.2, epochs=1, seed 0",
        "gat, learning_rate=0.2, epochs=2, seed 0",
    ]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("[{model.name: gat}]", 6),
        ("[{model.name: gat, pipeline.staleness: [0, 1]}]", 8),
        ("[{model.name: gat, pipeline.staleness: null}, {train.seed: 1}]", 5),
        ("[{pipeline.staleness: 1.0}]", 8),
        ("[]", 12),
    ],
)
def test_exclusions(exclude: str, left: int) -> None:
    assert len(_expand(f"{_STUDY}exclude: {exclude}\n").runs) == left


def test_what_is_excluded_need_not_be_possible() -> None:
    """GCN has no heads."""
    text = "grid: {model.name: [gcn, gat], model.heads: [2, 4]}\n"
    with pytest.raises(ConfigError, match=r"model\.heads is not an option of model gcn"):
        _expand(text)
    assert _labels(_expand(text + "exclude: [{model.name: gcn}]\n")) == ["gat, heads=2, seed 0", "gat, heads=4, seed 0"]


def test_numbers_are_excluded_and_selected_as_they_are_written() -> None:
    text = "grid: {optimizer.learning_rate: [0.1, 1e-2, 1]}\n"
    assert _labels(_expand(text + "exclude: [{optimizer.learning_rate: 1e-1}]\n")) == [
        "learning_rate=0.01, seed 0",
        "learning_rate=1, seed 0",
    ]
    for given, value in (("0.1", "0.1"), ("1e-1", "0.1"), ("0.01", "0.01"), ("1e-2", "0.01"), ("1.0", "1")):
        found = select(_expand(text), [("optimizer.learning_rate", given)])
        assert _labels(found) == [f"learning_rate={value}, seed 0"]


@pytest.mark.parametrize(
    ("conditions", "labels"),
    [
        ([("model.name", "gat"), ("pipeline.staleness", "1")], ["gat, async S=1, seed 0", "gat, async S=1, seed 1"]),
        ([("pipeline.staleness", "null"), ("train.seed", "1")], ["gcn, pipe, seed 1", "gat, pipe, seed 1"]),
        (
            [("train.seed", "0"), ("model.name", "gcn"), ("pipeline.staleness", "0"), ("pipeline.staleness", "1")],
            ["gcn, async S=0, seed 0", "gcn, async S=1, seed 0"],
        ),
    ],
)
def test_only(conditions: list[tuple[str, str]], labels: list[str]) -> None:
    assert _labels(select(_expand(_STUDY), conditions)) == labels


def test_only_of_nothing_is_all() -> None:
    sweep = _expand(_STUDY)
    assert select(sweep, []) is sweep


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (
            [("model.nam", "gcn")],
            "--only model.nam=gcn: 'model.nam' does not vary in sweep s: did you mean model.name?",
        ),
        ([("model.name", "sage")], "--only model.name=sage: in sweep s model.name is gcn, gat"),
        (
            [("pipeline.staleness", "true")],
            "--only pipeline.staleness=true: in sweep s pipeline.staleness is null, 0, 1",
        ),
        ([("pipeline.staleness", "[1")], "--only pipeline.staleness=[1: in sweep s pipeline.staleness is null, 0, 1"),
        (
            [("pipeline.mode", "pipe"), ("pipeline.staleness", "1")],
            "--only: no run meets all of pipeline.mode=pipe, pipeline.staleness=1",
        ),
    ],
)
def test_only_says_what_there_is(conditions: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        select(_expand(_STUDY), conditions)
    assert str(caught.value) == message


def test_what_is_compared() -> None:
    sweep = _expand(_STUDY + "compare: {baseline: {pipeline.mode: pipe}}\n")
    found = sweep.comparison
    assert found == Comparison(("pipeline.mode", "pipeline.staleness"), {"pipeline.mode": "pipe"}, 0.01, None)
    assert [run.name for run in sweep.runs if found.is_baseline(run)] == ["gcn, pipe"] * 2 + ["gat, pipe"] * 2
    assert found.group(sweep.runs[2]) == found.group(sweep.runs[0]) == (("model.name", "gcn"),)
    given = _expand(_STUDY + "compare: {baseline: {pipeline.staleness: null}, target: 0.5}\n").comparison
    assert given == Comparison(("pipeline.mode", "pipeline.staleness"), {"pipeline.staleness": None}, 0.01, 0.5)
    given = _expand(_STUDY + "compare: {baseline: {model.name: gat}, margin: 0.02}\n").comparison
    assert given == Comparison(("model.name",), {"model.name": "gat"}, 0.02, None)
    assert _expand(_STUDY).comparison is None


def test_only_without_the_baseline_compares_nothing() -> None:
    sweep = _expand(_STUDY + "compare: {baseline: {pipeline.mode: pipe}}\n")
    assert select(sweep, [("model.name", "gat")]).comparison == sweep.comparison
    assert select(sweep, [("train.seed", "1")]).comparison == sweep.comparison
    assert select(sweep, [("pipeline.mode", "async")]).comparison is None


_ZIP_MUST = "zip must hold keys with lists of values that go together, as in `pipeline.mode: [pipe, async]`, got "


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        # zip
        ("zip: 3\n", f"6: {_ZIP_MUST}3"),
        ("zip: null\n", f"6: {_ZIP_MUST}null"),
        ("zip: {}\n", f"6: {_ZIP_MUST}{{}}"),
        ("zip: []\n", "6: zip must hold keys with lists of values, got []"),
        ("zip:\n  - {train.epochs: [1]}\n  - 4\n", f"8: {_ZIP_MUST}4"),
        ("zip: {train.epoch: [1]}\n", "6: unknown key 'train.epoch': did you mean train.epochs?"),
        ("zip: {train.epochs: 1}\n", "6: train.epochs must have a list of at least one value, got 1"),
        ("zip:\n  train.epochs:\n    - 1\n    - x\n", "9: train.epochs must be a whole number ≥ 1, got 'x'"),
        (
            "zip:\n  train.epochs: [1, 2]\n  train.patience: [1]\n",
            "8: values of zip go together, but train.epochs lists 2 and train.patience lists 1",
        ),
        ("zip:\n  train.epochs:\n    - 1\n    - 1\n", "9: zip lists [1] twice"),
        ("zip: {model.name: [gcn]}\n", "6: model.name is in grid and in zip: take it out of one"),
        ("zip: {optimizer.name: [adam]}\n", "6: optimizer.name is in base and in zip: take it out of one"),
        (
            "zip:\n  - {train.epochs: [1]}\n  - {train.epochs: [2]}\n",
            "8: train.epochs is in two blocks of zip: take it out of one",
        ),
        ("zip: {train.seed: [1]}\n", "6: train.seed is not for the zip: list seeds under `seeds`"),
        ("zip: {optimizer.momentum: [0.5]}\n", "6: optimizer.momentum is not an option of optimizer adam"),
        (
            "zip:\n  - {train.epochs: [1]}\n  - {optimizer.momentum: [0.5]}\n",
            "8: optimizer.momentum is not an option of",
        ),
        # exclude
        ("exclude: {model.name: gcn}\n", "6: exclude must be a list of settings such as `{model.name: gat}`, got {'"),
        ("exclude: null\n", "6: exclude must be a list of settings such as `{model.name: gat}`, got null"),
        ("exclude: [{}]\n", "6: exclude must be a list of settings such as `{model.name: gat}`, got [{}]"),
        ("exclude:\n  - model.nam: gcn\n", "7: 'model.nam' does not vary here: did you mean model.name?"),
        ("exclude:\n  - optimizer.name: adam\n", "7: 'optimizer.name' does not vary here: "),
        ("exclude:\n  - model.name: [gcn, sage]\n", "7: model.name is never 'sage' here, but 'gcn', 'gat'"),
        ("exclude: [{train.seed: 2}]\n", "6: train.seed is never 2 here, but 0, 1"),
        ("exclude: [{train.seed: true}]\n", "6: train.seed is never true here, but 0, 1"),
        ("exclude: [{model.dropout: '0.1'}]\n", "6: model.dropout is never '0.1' here, but 0.1, 0.2"),
        ("exclude:\n  - model.name: [gcn, gat]\n", "6: every run is excluded"),
        ("exclude:\n  - {train.seed: 0}\n  - model.name: []\n", "8: excludes no run: {'model.name': []}"),
        # compare
        ("compare: 3\n", "6: compare must hold a baseline, as in `baseline: {pipeline.mode: pipe}`"),
        ("compare: {margin: 0.1}\n", "6: compare must hold a baseline, as in `baseline: {pipeline.mode: pipe}`"),
        (
            "compare:\n  baseline: {model.name: gcn}\n  targt: 0.5\n",
            "8: unknown part 'targt' of compare: did you mean target?",
        ),
        ("compare:\n  baseline: gcn\n", "7: baseline must hold at least one key with its value, got 'gcn'"),
        ("compare: {baseline: {}}\n", "6: baseline must hold at least one key with its value, got {}"),
        ("compare: {baseline: {model.name: sage}}\n", "6: model.name is never 'sage' here, but 'gcn', 'gat'"),
        ("compare: {baseline: {train.seed: 0}}\n", "6: 'train.seed' does not vary here: "),
        ("compare: {baseline: {model.name: [gcn]}}\n", "6: model.name is never ['gcn'] here, but 'gcn', 'gat'"),
        ("compare:\n  baseline: {model.name: gcn}\n  margin: 0\n", "8: margin must be > 0 and < 1, got 0"),
        ("compare:\n  baseline: {model.name: gcn}\n  margin: true\n", "8: margin must be > 0 and < 1, got true"),
        ("compare:\n  baseline: {model.name: gcn}\n  target: 82\n", "8: target must be > 0 and < 1, got 82"),
        ("compare:\n  baseline: {model.name: gcn}\n  target: '1'\n", "8: target must be > 0 and < 1, got '1'"),
        (
            "compare:\n  baseline: {model.name: gcn}\n  target: 0.5\n  margin: 0.1\n",
            "9: target and margin exclude each other: give one",
        ),
        (
            "compare:\n  baseline: {model.name: gcn}\n  over: model.dropout\n",
            "8: over must be a list of keys such as `[data.name]`, got 'model.dropout'",
        ),
        (
            "compare:\n  baseline: {model.name: gcn}\n  over: [data.name]\n",
            "8: over lists keys that vary between what is compared, got data.name: those are model.dropout",
        ),
        (
            "compare:\n  baseline: {model.name: gcn}\n  over: [model.name]\n",
            "8: over lists keys that vary between what is compared, got model.name: those are model.dropout",
        ),
        (
            "exclude: [{model.name: gcn, model.dropout: 0.2}]\ncompare: {baseline: {model.name: gcn}}\n",
            "7: (gat, dropout=0.2, seed 0) has no run to be compared with",
        ),
        (
            "exclude: [{model.name: gcn, train.seed: 1}]\ncompare: {baseline: {model.name: gcn}}\n",
            "7: (gat, dropout=0.1, seed 1) has no run to be compared with",
        ),
        (
            "zip: {train.epochs: [1, 1], train.patience: [1, 2]}\ncompare: {baseline: {train.epochs: 1}}\n",
            "7: both (gcn, dropout=0.1, epochs=1, patience=1, seed 0) and "
            "(gcn, dropout=0.1, epochs=1, patience=2, seed 0) are the baseline: name one",
        ),
    ],
)
def test_mistakes_in_what_goes_together_is_left_out_or_compared(rest: str, message: str) -> None:
    text = "base: {optimizer.name: adam}\ngrid:\n  model.name: [gcn, gat]\n  model.dropout: [0.1, 0.2]\nseeds: 2\n"
    with pytest.raises(ConfigError) as caught:
        _expand(text + rest)
    assert str(caught.value).startswith(f"s.yaml:{message}")
