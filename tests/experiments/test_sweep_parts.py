"""Sweep files of several parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dorylax.config import ConfigError
from dorylax.experiments.confounding import confounders
from dorylax.experiments.sweep import RunOutcome, Study, Sweep, select
from dorylax.experiments.sweep_file import read

TEXT = """\
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


def _read(text: str) -> Sweep:
    return read(text, "s.yaml", "s")


def test_runs_of_all_parts_each_once() -> None:
    sweep = _read(TEXT)
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
    assert _read(TEXT) == sweep


MIXED = """\
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
    sweep = _read(MIXED)
    simulated, trained = sweep.parts
    assert (sweep.simulated, simulated.simulated) == (False, True)
    assert all(run.simulation is None for run in trained.runs)
    assert {run.config.train.epochs for part in sweep.parts for run in part.runs} == {5}
    with pytest.raises(ConfigError, match=r"^s.yaml:8: graph.name is of simulations: add `simulate: true`"):
        _read(MIXED.replace("data.size: tiny", "graph: {name: amazon}"))
    with pytest.raises(ConfigError, match=r"^s.yaml:1: graph.name is of simulations: add `simulate: true`"):
        _read(MIXED.replace("simulate: true\n", ""))


def test_only_leaves_out_parts_that_do_not_vary_a_key() -> None:
    sweep = _read(TEXT)
    chosen = select(sweep, [("train.epochs", "7")])
    assert [part.name for part in chosen.parts] == ["other"]
    assert [run.config.train.epochs for run in chosen.runs] == [7]
    assert chosen.text == sweep.text
    assert [len(part.runs) for part in select(sweep, [("pipeline.mode", "pipe")]).parts] == [1, 2]
    with pytest.raises(ConfigError, match=r"--only model\.name=gcn"):
        select(sweep, [("model.name", "gcn")])


def test_data_that_are_not_verified() -> None:
    sweep = _read(TEXT.replace("graph.name: amazon", "data.size: tiny")).unverified()
    assert not any(run.config.data.verify for whole in (sweep, *sweep.parts) for run in whole.runs)
    assert replace(sweep, parts=()) != sweep


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parts:\n", "grid: {}\nparts:\n", "s.yaml:7: unknown part 'grid' of a sweep"),
        (
            "    grid: {pipeline.mode",
            "    gird: {pipeline.mode",
            r"s.yaml:11: unknown part 'gird' of a sweep: did you mean",
        ),
        ("no-pipe]", "no-pip]", "s.yaml:11: pipeline.mode must be one of no-pipe"),
        ("{servers: 3}", "{servers: 0}", "s.yaml:10: pipeline.servers must be ≥ 1, got 0"),
        ("train.epochs: 5\n", "train.epoch: 5\n", "s.yaml:5: unknown key 'train.epoch'"),
        ("    description: the first\n", "    parts: {}\n", "s.yaml:9: a part of a sweep has no parts itself"),
        (
            "    base: {pipeline: {servers: 3}}",
            "    base: 3",
            "s.yaml:10: base must hold keys such as train.epochs, got 3",
        ),
    ],
)
def test_mistakes_have_their_line(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError, match=f"^{message}"):
        _read(TEXT.replace(old, new, 1))


def test_parts_must_be_sweeps() -> None:
    with pytest.raises(ConfigError, match=r"s.yaml:1: parts must hold sweeps by name, got \[1\]"):
        _read("parts: [1]\n")
    with pytest.raises(ConfigError, match=r"s.yaml:1: one needs a grid or a zip"):
        _read("parts: {one: {seeds: 2}}\n")
    with pytest.raises(ConfigError, match=r"s.yaml:1: one must be a sweep, with a grid or a zip, got 3"):
        _read("parts: {one: 3}\n")
