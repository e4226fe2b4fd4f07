"""Sweeps of simulations: their keys, and the runs that these make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dorylax.config import ConfigError
from dorylax.experiments.sweep import Sweep
from dorylax.experiments.sweep_file import read
from dorylax.simulation.paper import GRAPHS

BASE = """\
simulate: true
base:
  graph: {name: amazon, edges: 1000}
  model.hidden_features: 16
  pipeline.servers: 2
  cluster: {function: {memory_mb: 512}}
"""


def _read(text: str) -> Sweep:
    return read(text, "s.yaml", "s")


def test_graphs_backends_and_clusters_vary() -> None:
    sweep = _read(
        BASE + "grid: {simulation.backend: [functions, cpu]}\n"
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
    (run,) = _read("simulate: true\nbase: {data.size: tiny, pipeline.servers: 2}\n").runs
    assert run.virtual
    assert run.config.pipeline.clock == "virtual"
    assert run.dotted()["data.size"] == "tiny"


def test_a_run_that_trains_has_the_key_that_it_always_had() -> None:
    (run,) = _read("base: {data.size: tiny, pipeline.clock: virtual}\nseeds: 1\n").runs
    (simulated,) = _read("simulate: true\nbase: {data.size: tiny}\nseeds: 1\n").runs
    assert run.key == run.config.key()
    assert simulated.config == run.config
    assert simulated.key != run.key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {graph.name: [amazon]}\n", r"s.yaml:1: graph.name is of simulations: add `simulate: true`, or leave"),
        ("base: {graph: {name: amazon}}\nseeds: 1\n", "s.yaml:1: graph is of simulations"),
        ("simulate: 1\nseeds: 1\n", "s.yaml:1: simulate must be true or false, got 1"),
        (BASE + "grid: {graph.nam: [x]}\n", r"s.yaml:7: unknown key 'graph.nam': did you mean graph.name\?"),
        (BASE + "grid: {simulation.backend: [cpu, tpu]}\n", "s.yaml:7: simulation.backend must be one of functions"),
        (BASE + "grid: {graph.name: [x]}\n", "s.yaml:7: graph.name is in base and in grid: take it out of one"),
        (BASE + "grid: {cluster.functons: [3]}\n", "s.yaml:7: cluster.functons is not a key of a cluster"),
        (BASE + "grid: {graph.features: [3]}\nzip: {graph.cut_ratio: [3]}\n", "s.yaml:3: graph: cut_ratio must be"),
        (BASE + "grid: {data.name: [cora]}\n", "s.yaml:7: data.name names a data set, and graph describes another"),
        (BASE + "grid: {pipeline.clock: [real]}\n", "s.yaml:7: pipeline.clock must be virtual in a simulation"),
        (BASE + "grid: {simulation.epochs: [3, 3]}\n", "s.yaml:7: simulation.epochs lists 3 twice"),
        (
            BASE + "grid: {pipeline.mode: [pipe]}\ncompare: {baseline: {pipeline.mode: pipe}, margin: 0.1}\n",
            "s.yaml:8: margin is of runs that train, and these are simulated: leave it out",
        ),
        (
            BASE + "grid: {pipeline.mode: [pipe]}\ncompare: {baseline: {pipeline.mode: pipe}, name: 3}\n",
            "s.yaml:8: name must be text, got 3",
        ),
    ],
)
def test_mistakes_have_their_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        _read(text)


def test_the_sweep_of_the_guide() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "experiments.md").read_text(encoding="utf-8")
    (text,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "simulate: true" in block)
    assert len(_read(text).runs) == 18
