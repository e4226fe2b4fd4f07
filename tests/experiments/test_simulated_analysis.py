"""What sweeps of simulations have shown, on results with known answers."""

from __future__ import annotations

import pytest

from dorylax.experiments.measures import MEASURES
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.simulated_analysis import SimulatedGroup, analyse_simulated
from dorylax.experiments.sweep import Run
from dorylax.experiments.sweep_file import read

TEXT = """\
simulate: true
base: {pipeline.servers: 2}
grid: {graph.name: [amazon, friendster]}
zip: {pipeline.mode: [pipe, async], pipeline.staleness: [null, 0]}
seeds: 2
compare: {baseline: {pipeline.mode: pipe}}
published:
  source: a paper
  points: [{at: {graph.name: amazon, pipeline.mode: async}, epoch_seconds_ratio: 0.9, dollars: 3}]
"""


def _outcome(run: Run, seconds: float, dollars: float) -> RunOutcome:
    summary = dict.fromkeys(MEASURES, 0.5) | {"epoch_seconds": seconds, "seconds": 10 * seconds, "dollars": dollars}
    return RunOutcome(run, "done", summary | {"value": 1 / (10 * seconds * dollars)})


def _groups(text: str = TEXT, *, without: str = "") -> list[SimulatedGroup]:
    sweep = read(text, "s.yaml", "s")
    outcomes = []
    for run in sweep.runs:
        asynchronous, seed = run.setting["pipeline.mode"] == "async", run.config.train.seed
        done = _outcome(run, (2.0 if asynchronous else 4.0) * (1 + seed), 6.0 if asynchronous else 3.0)
        outcomes.append(RunOutcome(run, "open") if without and without in run.label else done)
    return analyse_simulated(sweep, outcomes)


def test_ratios_are_of_means_paired_by_seed() -> None:
    amazon, friendster = _groups()
    assert (amazon.name, friendster.name) == ("amazon", "friendster")
    base, other = amazon.variants
    assert (base.name, base.is_baseline, base.ratios, amazon.baseline) == ("pipe", True, {}, base)
    assert other.name == "async S=0"
    assert {name: ratio.estimate for name, ratio in other.ratios.items()} == pytest.approx(
        {"epoch_seconds": 0.5, "seconds": 0.5, "dollars": 2.0, "value": 1.0}
    )
    assert (other.ratios["seconds"].low, other.ratios["seconds"].high) == pytest.approx((0.5, 0.5))
    assert other.mean("epoch_seconds") == pytest.approx(3.0)
    *said, rough = amazon.sentences
    assert rough == "Intervals of 2 seeds are rough: Student's t with 1 degree of freedom in place of the bootstrap."
    assert said == [
        "async S=0 has 0.50× (0.50–0.50) the time of an epoch, 2.00× (2.00–2.00) the cost and 1.00× (1.00–1.00) the value "
        "of pipe."
    ]


def test_what_was_published_goes_with_its_runs() -> None:
    amazon, friendster = _groups()
    assert amazon.published == ["epoch_seconds_ratio", "dollars"]
    assert amazon.variants[1].published == {"epoch_seconds_ratio": 0.9, "dollars": 3.0}
    assert amazon.source == "a paper"
    assert friendster.published == []


def test_what_is_not_done_is_not_compared() -> None:
    amazon, _ = _groups(without="amazon, pipe")
    assert amazon.variants[0].mean("seconds") is None
    assert (len(amazon.variants[0].runs), amazon.variants[0].planned) == (0, 2)
    assert amazon.variants[1].ratios == {}
    assert amazon.sentences == []


def test_variants_are_named_by_what_differs_and_baselines_as_the_file_says() -> None:
    text = (
        "simulate: true\nbase: {graph.name: amazon, pipeline.mode: async}\n"
        "zip: {pipeline.fuse: [true, false, true], tensor.streaming: [true, true, false]}\n"
        "compare: {baseline: {pipeline.fuse: true, tensor.streaming: true}, name: all on}\n"
    )
    sweep = read(text, "s.yaml", "s")
    (group,) = analyse_simulated(sweep, [_outcome(run, 1.0, 1.0) for run in sweep.runs])
    assert group.name == ""
    assert [one.name for one in group.variants] == ["all on", "fuse=false", "streaming=false"]


def test_nothing_that_costs_nothing_has_a_value() -> None:
    text = "simulate: true\nbase: {graph.name: amazon}\ngrid: {pipeline.mode: [pipe, no-pipe]}\n"
    sweep = read(text + "compare: {baseline: {pipeline.mode: pipe}}\n", "s.yaml", "s")
    free = dict.fromkeys(MEASURES, 0.0) | {"epoch_seconds": 1.0, "seconds": 1.0, "value": None}
    (group,) = analyse_simulated(sweep, [RunOutcome(run, "done", free) for run in sweep.runs])
    assert group.variants[1].ratios.keys() == {"epoch_seconds", "seconds"}
    assert group.variants[1].mean("value") is None
    assert group.sentences == ["no-pipe has 1.00× the time of an epoch of pipe."]
    (group,) = analyse_simulated(read(text, "s.yaml", "s"), [RunOutcome(run, "done", free) for run in sweep.runs])
    assert group.baseline is None
    assert [one.name for one in group.variants] == ["pipe", "no-pipe"]
