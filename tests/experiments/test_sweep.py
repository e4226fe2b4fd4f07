"""Sweep files: what they expand to. The snapshot `golden/snapshots/sweep.txt` has the message of each mistake."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dorylax.config import ConfigError, RunConfig
from dorylax.experiments.confounding import confounders
from dorylax.experiments.sweep import Comparison, RunOutcome, Study, Sweep, select
from dorylax.experiments.sweep_file import one_setting, read
from dorylax.simulation.paper import GRAPHS


def _expand(text: str) -> Sweep:
    return read(text, "s.yaml", "s")


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


def test_the_same_run_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cannot happen while every key changes the identity, so the identity is broken here."""
    from dorylax.config import RunConfig

    monkeypatch.setattr(RunConfig, "key", lambda self: self.model.name)
    with pytest.raises(ConfigError) as caught:
        _expand("grid:\n  model.dropout: [0.1, 0.2]\n")
    assert str(caught.value) == ("s.yaml:1: (dropout=0.2, seed 0) is the same run as (dropout=0.1, seed 0): remove one")


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


# Parts.

_PARTS = """\
description: both
simulate: true
base:
  graph.name: amazon
  train.epochs: 5
  pipeline.servers: 2
parts:
  one:
    description: the first
    base: {pipeline: {servers: 3}}
    grid: {pipeline.mode: [pipe, no-pipe]}
    compare: {baseline: {pipeline.mode: pipe}}
  other:
    zip: {pipeline.mode: [pipe, pipe], train.epochs: [5, 7], pipeline.servers: [3, 3]}
"""


def test_runs_of_all_parts_each_once() -> None:
    sweep = _expand(_PARTS)
    assert (sweep.name, sweep.description, sweep.axes) == (
        "s",
        "both",
        ("pipeline.mode", "train.epochs", "pipeline.servers"),
    )
    one, other = sweep.parts
    assert (one.name, one.description, other.name) == ("one", "the first", "other")
    assert {run.config.pipeline.servers for run in sweep.runs if run.config.pipeline is not None} == {3}
    assert [run.config.train.epochs for run in other.runs] == [5, 7]
    # The same run in both, though each has its own name for it.
    assert one.runs[0].key == other.runs[0].key
    assert one.runs[0].label != other.runs[0].label
    assert [run.key for run in sweep.runs] == [one.runs[0].key, one.runs[1].key, other.runs[1].key]
    assert confounders(sweep) == []
    study = Study(sweep, [RunOutcome(run, "open") for run in sweep.runs], None)
    assert [[outcome.run for outcome in part.outcomes] for part in study.parts] == [list(one.runs), list(other.runs)]
    assert _expand(_PARTS) == sweep


_MIXED = """\
simulate: true
base: {graph: {name: amazon}, cluster.functions: 9, train.epochs: 5}
parts:
  simulated:
    grid: {pipeline.mode: [pipe, no-pipe]}
  trained:
    simulate: false
    base: {data.size: tiny}
    grid: {pipeline.mode: [pipe, no-pipe]}
"""


def test_a_part_that_trains_takes_no_keys_of_simulations() -> None:
    sweep = _expand(_MIXED)
    simulated, trained = sweep.parts
    assert (sweep.simulated, simulated.simulated) == (False, True)
    assert all(run.simulation is None for run in trained.runs)
    assert {run.config.train.epochs for part in sweep.parts for run in part.runs} == {5}
    with pytest.raises(ConfigError, match=r"^s.yaml:8: graph.name is of simulations: add `simulate: true`"):
        _expand(_MIXED.replace("data.size: tiny", "graph: {name: amazon}"))
    with pytest.raises(ConfigError, match=r"^s.yaml:1: graph.name is of simulations: add `simulate: true`"):
        _expand(_MIXED.replace("simulate: true\n", ""))


def test_only_leaves_out_parts_that_do_not_vary_a_key() -> None:
    sweep = _expand(_PARTS)
    chosen = select(sweep, [("train.epochs", "7")])
    assert [part.name for part in chosen.parts] == ["other"]
    assert [run.config.train.epochs for run in chosen.runs] == [7]
    assert chosen.text == sweep.text
    assert [len(part.runs) for part in select(sweep, [("pipeline.mode", "pipe")]).parts] == [1, 2]
    with pytest.raises(ConfigError, match=r"--only model\.name=gcn"):
        select(sweep, [("model.name", "gcn")])


def test_data_that_are_not_verified() -> None:
    sweep = _expand(_PARTS.replace("graph.name: amazon", "data.size: tiny")).unverified()
    assert not any(run.config.data.verify for whole in (sweep, *sweep.parts) for run in whole.runs)
    assert replace(sweep, parts=()) != sweep


# Published numbers.

_PUBLISHED = """\
simulate: true
base: {graph.name: amazon}
zip: {pipeline.mode: [pipe, async, async], pipeline.staleness: [null, 0, 1]}
compare: {baseline: {pipeline.mode: pipe}}
published:
  source: a paper
  points:
    - {at: {pipeline.mode: async}, dollars: 3, seconds_ratio: 0.5}
    - {at: {pipeline.staleness: 1}, dollars: 4.5}
"""


def test_points_by_setting() -> None:
    sweep = _expand(_PUBLISHED)
    assert sweep.published.source == "a paper"
    found = [sweep.published.of(run.setting) for run in sweep.runs]
    assert found == [{}, {"dollars": 3.0, "seconds_ratio": 0.5}, {"dollars": 4.5, "seconds_ratio": 0.5}]


_PUBLISHED_OF_TRAINING = """\
base: {data.size: tiny}
zip: {pipeline.mode: [pipe, async, async], pipeline.staleness: [null, 0, 1]}
compare: {baseline: {pipeline.mode: pipe}}
published:
  source: a paper
  points:
    - {at: {pipeline.staleness: 1}, epochs_to_target_ratio: 1.41}
"""


def test_points_of_runs_that_train() -> None:
    sweep = _expand(_PUBLISHED_OF_TRAINING)
    assert [sweep.published.of(run.setting) for run in sweep.runs] == [{}, {}, {"epochs_to_target_ratio": 1.41}]


# Simulations.

_SIMULATED = """\
simulate: true
base:
  graph: {name: amazon, edges: 1000}
  model.hidden_features: 16
  pipeline.servers: 2
  cluster: {function: {memory_mb: 512}}
"""


def test_graphs_backends_and_clusters_vary() -> None:
    sweep = _expand(
        _SIMULATED + "grid: {simulation.backend: [functions, cpu]}\n"
        "zip: {graph.vertices: [null, 500], cluster.graph_server: [c5.xlarge, r5.2xlarge]}\nseeds: 2\n"
    )
    assert sweep.simulated
    assert len({run.key for run in sweep.runs}) == len(sweep.runs) == 8
    made = [run.simulation.scenario(run.name, run.config) for run in sweep.runs if run.simulation is not None]
    assert [one.backend for one in made] == ["functions"] * 4 + ["cpu"] * 4
    assert [one.graph.vertices for one in made[::2] if one.graph is not None] == [GRAPHS["amazon"].vertices, 500] * 2
    assert [one.cluster.graph_server.name for one in made[::2]] == ["c5.xlarge", "r5.2xlarge"] * 2
    assert {one.cluster.function.memory_mb for one in made} == {512}
    assert {one.config.train.seed for one in made} == {0, 1}
    assert sweep.runs[2].label == "functions, vertices=500, r5.2xlarge, seed 0"
    dotted = sweep.runs[2].dotted()
    assert not [key for key in dotted if key.startswith("data.")]
    assert (dotted["graph.vertices"], dotted["cluster.function.memory_mb"]) == (500, 512)


def test_one_setting_needs_no_seeds_and_data_may_be_real() -> None:
    (run,) = _expand("simulate: true\nbase: {data.size: tiny, pipeline.servers: 2}\n").runs
    assert run.virtual
    assert run.config.pipeline.clock == "virtual"
    assert run.dotted()["data.size"] == "tiny"


def test_a_run_that_trains_has_the_key_that_it_always_had() -> None:
    (run,) = _expand("base: {data.size: tiny, pipeline.clock: virtual}\nseeds: 1\n").runs
    (simulated,) = _expand("simulate: true\nbase: {data.size: tiny}\nseeds: 1\n").runs
    assert run.key == run.config.key()
    assert simulated.config == run.config
    assert simulated.key != run.key


def test_the_sweep_of_the_guide() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "experiments.md").read_text(encoding="utf-8")
    (text,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "simulate: true" in block)
    assert len(_expand(text).runs) == 18
