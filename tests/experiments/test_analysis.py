"""Comparison of variants with their baseline, by seed, in each group and over groups, on histories with known answers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dorylax.experiments.analysis import AT_LEAST, AT_MOST, Finding, Group, RunHistory, compare, grouped, pool
from dorylax.experiments.measures import MEASURES
from dorylax.experiments.sweep import Run, Sweep
from dorylax.experiments.sweep_file import read
from dorylax.runs.result import EpochRecord

_TEXT = """\
base: {data.size: tiny}
grid: {model.name: [gcn, gat]}
zip:
  pipeline.mode: [pipe, async]
  pipeline.staleness: [null, 1]
seeds: 2
"""
_COMPARE = "compare: {baseline: {pipeline.mode: pipe}}\n"
_TARGET = "compare: {baseline: {pipeline.mode: pipe}, target: 0.85}\n"


@functools.cache
def _sweep(compare: str = _COMPARE) -> Sweep:
    return read(_TEXT + compare, "s.yaml", "s")


def _is_pipe(run: Run) -> bool:
    return run.setting["pipeline.mode"] == "pipe"


def done(
    run: Run,
    accuracies: Sequence[float | None],
    seconds: float = 1.0,
    dollars: float | None = 1.0,
    test: float | None = 0.8,
) -> RunHistory:
    """A run with these validation accuracies; each epoch takes the same seconds and dollars."""
    history = [
        EpochRecord(epoch, 1.0, value, value, value, seconds, None if dollars is None else dollars * (epoch + 1))
        for epoch, value in enumerate(accuracies)
    ]
    return RunHistory(run, history, {"test_accuracy": test})


def crossing_at(epochs: int, length: int = 20) -> list[float]:
    """Accuracies whose mean over three epochs reaches 0.9 after so many."""
    return [0.1] * (epochs - 3) + [0.9] * (length - epochs + 3)


def _runs(sweep: Sweep, **asynchronous: Any) -> list[RunHistory]:
    """Synchronous runs reach 0.9 after 5 epochs; the others, unless told otherwise, after 10 of half the time."""
    given: dict[str, Any] = {"accuracies": crossing_at(10), "seconds": 0.5, "dollars": 0.25, **asynchronous}
    return [done(run, crossing_at(5)) if _is_pipe(run) else done(run, **given) for run in sweep.runs]


def _first(sweep: Sweep, runs: Sequence[RunHistory]) -> Finding:
    """On the asynchronous variant of the first group."""
    (found,) = grouped(sweep, runs)[0].findings
    return found


def reached(found: Finding) -> tuple[int, int, int]:
    """Runs of the variant and of the baseline that reach the target, and pairs of runs."""
    both = [sum(side["reached"].sum() for side in sides) for sides in zip(*found.pairs, strict=True)]
    return both[0], both[1], len(found.runs)


def test_groups_hold_what_is_compared() -> None:
    groups = grouped(_sweep(), _runs(_sweep()))
    assert [group.name for group in groups] == ["gcn", "gat"]
    assert [[one.name for one in group.variants] for group in groups] == [["pipe", "async S=1"]] * 2
    assert [[one.is_baseline for one in group.variants] for group in groups] == [[True, False]] * 2
    assert [one.planned for one in groups[0].variants] == [2, 2]
    assert groups[0].target == pytest.approx(0.89)
    assert groups[1].variants[1].setting == {
        "model.name": "gat",
        "pipeline.mode": "async",
        "pipeline.staleness": 1,
    }


def test_published_numbers_go_with_their_variant() -> None:
    points = "[{at: {model.name: gat, pipeline.mode: async}, epochs_to_target_ratio: 1.5}]"
    sweep = _sweep(f"{_COMPARE}published: {{source: a paper, points: {points}}}\n")
    gcn, gat = grouped(sweep, _runs(sweep))
    assert (gcn.published, gat.published, gat.source) == ([], ["epochs_to_target_ratio"], "a paper")
    assert gat.published_ratio(gat.variants[1].name, "epochs") == 1.5
    assert gat.published_ratio(gat.variants[0].name, "epochs") is None


def test_two_axes_without_a_comparison_are_one_group() -> None:
    sweep = _sweep("")
    (group,) = grouped(sweep, _runs(sweep))
    assert (group.name, group.target, group.findings) == ("", None, [])
    assert [one.name for one in group.variants] == ["gcn, pipe", "gcn, async S=1", "gat, pipe", "gat, async S=1"]


def test_ratios_to_the_target() -> None:
    group = grouped(_sweep(), _runs(_sweep(), test=0.802))[0]
    base, found = group.variants[0].finding, group.variants[1].finding
    assert base is not None
    assert found is not None
    measures = ("epochs", "seconds", "dollars", "accuracy", "best", "last")
    assert [base.mean(measure) for measure in measures] == pytest.approx([5, 5, 5, 0.8, 0.9, 0.82])
    assert [found.mean(measure) for measure in measures[:3]] == [10.0, 5.0, 2.5]
    assert (reached(found), found.sign, found.failed) == ((2, 2, 2), "", ())
    assert {name: ratio.estimate for name, ratio in found.ratios.items()} == {"epochs": 2, "seconds": 1, "dollars": 0.5}
    assert found.differences["accuracy"].estimate == pytest.approx(0.002)
    for asks, counts in (("time", (0, 0)), ("epochs", (0, 1)), ("cost", (1, 0))):
        sweep = _sweep(_COMPARE.replace("pipe}}", f"pipe}}, asks: {asks}}}"))
        found = _first(sweep, _runs(sweep))
        assert (found.less, found.more) == counts, asks


def test_a_run_that_misses_the_target_counts_with_all_its_epochs() -> None:
    """Four times the epochs and twice the time; 0.6 of the cost says nothing."""
    found = _first(_sweep(), _runs(_sweep(), accuracies=[0.5] * 20, dollars=0.15))
    assert (reached(found), found.sign, found.failed) == ((0, 2, 2), AT_LEAST, ("gcn",))
    assert found.mean("epochs") is None
    assert {name: ratio.estimate for name, ratio in found.ratios.items()} == {"epochs": 4.0, "seconds": 2.0}


def test_a_run_that_ends_early_without_reaching_the_target_has_gained_nothing() -> None:
    found = _first(_sweep(), _runs(_sweep(), accuracies=[0.5] * 4))
    assert (found.ratios, found.failed) == ({}, ("gcn",))


def test_a_baseline_that_misses_the_target_makes_upper_bounds() -> None:
    sweep = _sweep(_TARGET)

    def found(base: Sequence[float]) -> Finding:
        return _first(sweep, [done(run, base if _is_pipe(run) else crossing_at(5)) for run in sweep.runs])

    assert (found([0.5] * 20).sign, found([0.5] * 20).ratios["epochs"].estimate) == (AT_MOST, 0.25)
    assert found([0.5] * 20).failed == ()
    assert found([0.5] * 4).ratios == {}  # that the baseline ended sooner says nothing


@pytest.mark.parametrize(
    ("reaching", "sign", "judged", "fails"),
    [
        ({"pipe": {0, 1}, "async": {0}}, AT_LEAST, 2, True),
        ({"pipe": {0}, "async": {0}}, "", 1, False),  # on the other seed both miss it
        ({"pipe": {0}, "async": {0, 1}}, AT_MOST, 2, False),
        ({"pipe": {0}, "async": {1}}, None, 2, True),
    ],
    ids=["variant fails", "both fail", "baseline fails", "each fails"],
)
def test_the_seeds_of_ratios(reaching: dict[str, set[int]], sign: str | None, judged: int, fails: bool) -> None:
    sweep = _sweep(_TARGET)
    found = _first(
        sweep,
        [
            done(run, crossing_at(5) if run.config.train.seed in reaching[run.setting["pipeline.mode"]] else [0.5] * 20)
            for run in sweep.runs
        ],
    )
    assert (found.sign, bool(found.failed), found.runs["reached"].sum()) == (sign, fails, len(reaching["async"]))
    if sign is None:
        assert found.ratios == {}
    else:
        assert found.ratios["epochs"].seeds == judged


def test_runs_without_cost_or_test_mask_have_no_ratio_or_difference() -> None:
    found = _first(_sweep(), _runs(_sweep(), dollars=None, test=None))
    assert set(found.ratios) == {"epochs", "seconds"}
    assert set(found.differences) == {"best", "last"}


def test_only_seeds_that_both_have_are_compared() -> None:
    runs = [one for one in _runs(_sweep()) if _is_pipe(one.run) or one.run.config.train.seed == 1]
    group = grouped(_sweep(), runs)[0]
    assert [len(one.finding.runs) for one in group.variants if one.finding] == [2, 1]
    assert (len(group.variants[1].runs), group.variants[1].planned) == (1, 2)
    apart = [one for one in _runs(_sweep()) if one.run.config.train.seed == _is_pipe(one.run)]
    assert grouped(_sweep(), apart)[0].findings == []


def test_pairs_have_the_same_seed() -> None:
    """In whatever order the runs come."""
    sweep = _sweep()
    runs = [
        done(run, crossing_at(5 + 5 * run.config.train.seed), test=0.1 * run.config.train.seed) for run in sweep.runs
    ]
    found = _first(
        sweep, [one for one in runs if _is_pipe(one.run)] + [one for one in runs[::-1] if not _is_pipe(one.run)]
    )
    difference = found.differences["accuracy"]
    assert (difference.low, difference.high) == (0, 0)
    mine = [one for one in runs[::-1] if one.run.setting == sweep.runs[2].setting]
    swapped = compare("", mine, runs[:2], 0.85)
    assert swapped is not None
    assert swapped.differences["accuracy"].high == 0


def test_without_a_baseline_run_nothing_is_compared() -> None:
    group = grouped(_sweep(), [one for one in _runs(_sweep()) if not _is_pipe(one.run)])[0]
    assert (group.target, group.findings) == (None, [])


def test_epochs_without_an_evaluation_are_counted() -> None:
    """Every second epoch is evaluated: the third evaluation at 0.9 is after epoch 8."""
    one = done(_sweep().runs[0], [None, 0.1, None, 0.9, None, 0.9, None, 0.9, None, 0.9])
    assert [record.epoch for record in one.evaluated] == [1, 3, 5, 7, 9]
    for target, epochs, found in ((0.85, 8, True), (0.95, 10, False)):
        measured = one.measured(target)
        assert [measured[name] for name in ("epochs", "seconds", "dollars")] == [epochs] * 3
        assert measured["reached"] == found


def test_runs_that_were_never_evaluated_miss_the_target() -> None:
    mine, theirs = (done(run, [None] * 4) for run in _sweep().runs[:2])
    assert compare("", [mine], [theirs], 0.5) is None  # other seeds
    found = compare("", [mine], [mine], 0.5)
    assert found is not None
    assert (reached(found), found.compared, found.ratios, found.failed) == ((0, 0, 1), False, {}, ())


# Over groups.

_GROUPS = """\
grid: {data.name: [cora, citeseer, pubmed]}
zip:
  pipeline.mode: [pipe, async]
  pipeline.staleness: [null, 1]
seeds: 2
compare: {baseline: {pipeline.mode: pipe}}
"""
_EPOCHS = {"cora": 4, "citeseer": 6, "pubmed": 8}


def pooled(change: Callable[[RunHistory], RunHistory | None] = lambda one: one) -> tuple[list[Group], list[Finding]]:
    """Groups in which asynchronous runs take `_EPOCHS` of half the time to the target, and the others 4."""
    sweep, runs = read(_GROUPS, "s.yaml", "s"), []
    for run in sweep.runs:
        data = run.setting["data.name"]
        one = done(run, crossing_at(4, 10)) if _is_pipe(run) else done(run, crossing_at(_EPOCHS[data], 10), 0.5, None)
        runs.append(change(one))
    groups = grouped(sweep, [one for one in runs if one is not None])
    return groups, pool(groups)


def _of(one: RunHistory, data: str) -> bool:
    return one.run.setting["data.name"] == data and not _is_pipe(one.run)


def test_each_group_counts_once() -> None:
    # Pubmed has one seed only, which counts as much as two seeds elsewhere.
    _, (found,) = pooled(
        lambda one: one if one.run.setting["data.name"] != "pubmed" or not one.run.config.train.seed else None
    )
    assert (found.name, found.groups, found.judged) == ("async S=1", ("cora", "citeseer", "pubmed"), 3)
    assert reached(found) == (5, 5, 5)
    assert found.ratios["epochs"].estimate == pytest.approx((1 + 1.5 + 2) / 3)
    assert found.ratios["seconds"].estimate == pytest.approx((1 + 1.5 + 2) / 6)
    assert not found.ratios["epochs"].exists  # pubmed has no interval
    assert "dollars" not in found.ratios
    assert found.differences["accuracy"].estimate == 0


def test_a_group_in_which_a_variant_misses_the_target_is_a_failure_in_every_number() -> None:
    """However much it gains elsewhere."""

    def fails(one: RunHistory) -> RunHistory:
        short = [dataclasses.replace(record, val_accuracy=0.1) for record in one.history[:3]]
        return dataclasses.replace(one, history=short) if _of(one, "pubmed") else one

    _, (found,) = pooled(fails)
    assert (found.failed, found.ratios, reached(found)) == (("pubmed",), {}, (4, 6, 6))
    assert (found.less, found.more) == (2, 1)


def test_one_seed_that_misses_the_target_makes_the_group_a_failure() -> None:
    def fails(one: RunHistory) -> RunHistory:
        low = [dataclasses.replace(record, val_accuracy=0.1) for record in one.history]
        return dataclasses.replace(one, history=low) if _of(one, "cora") and one.run.config.train.seed else one

    _, (found,) = pooled(fails)
    assert (found.failed, found.ratios) == (("cora",), {})


def test_groups_in_which_the_baseline_misses_the_target_have_no_ratio() -> None:
    def fails(one: RunHistory) -> RunHistory | None:
        return None if one.run.setting["data.name"] == "cora" and _is_pipe(one.run) else one

    groups, (found,) = pooled(fails)
    assert (groups[0].findings, found.groups) == ([], ("citeseer", "pubmed"))
    assert pool(groups[:2]) == []  # one group is no pool


# Simulations.

_SIMULATED = """\
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


def simulated(run: Run, seconds: float, dollars: float) -> RunHistory:
    """A simulated run with these measures."""
    summary = dict.fromkeys(MEASURES, 0.5) | {"epoch_seconds": seconds, "seconds": 10 * seconds, "dollars": dollars}
    return RunHistory(run, [], summary | {"value": 1 / (10 * seconds * dollars) if dollars else None})


def test_simulated_runs_are_compared_by_their_measures() -> None:
    sweep = read(_SIMULATED, "s.yaml", "s")
    runs = [
        simulated(run, (4.0 if _is_pipe(run) else 2.0) * (1 + run.config.train.seed), 3.0 if _is_pipe(run) else 6.0)
        for run in sweep.runs
    ]
    amazon, friendster = grouped(sweep, runs)
    assert (amazon.name, friendster.name) == ("amazon", "friendster")
    (found,) = amazon.findings
    assert {name: ratio.estimate for name, ratio in found.ratios.items()} == pytest.approx(
        {"epoch_seconds": 0.5, "seconds": 0.5, "dollars": 2.0, "value": 1.0}
    )
    assert amazon.variants[1].mean("epoch_seconds") == pytest.approx(3.0)
    assert amazon.published == ["dollars", "epoch_seconds_ratio"]
    assert amazon.published_ratio(amazon.variants[1].name, "epoch_seconds") == 0.9
    (missing, _) = grouped(sweep, [one for one in runs if not _is_pipe(one.run)])
    assert (missing.findings, missing.variants[0].mean("seconds")) == ([], None)


def test_variants_are_named_by_what_differs_and_baselines_as_the_file_says() -> None:
    text = (
        "simulate: true\nbase: {graph.name: amazon, pipeline.mode: async}\n"
        "zip: {pipeline.fuse: [true, false, true], tensor.streaming: [true, true, false]}\n"
        "compare: {baseline: {pipeline.fuse: true, tensor.streaming: true}, name: all on}\n"
    )
    sweep = read(text, "s.yaml", "s")
    (group,) = grouped(sweep, [simulated(run, 1.0, 0.0) for run in sweep.runs])
    assert [one.name for one in group.variants] == ["all on", "fuse=false", "streaming=false"]
    assert set(group.findings[0].ratios) == {"epoch_seconds", "seconds"}  # nothing costs anything


def test_labels_name_variants() -> None:
    sweep = read(
        "zip: {pipeline.mode: [pipe, async], pipeline.staleness: [null, 1], label: [synchronous, Dorylus (bound only)]}\n"
        "grid: {model.name: [gcn, gat]}\ncompare: {baseline: {pipeline.mode: pipe}}\n",
        "s.yaml",
        "s",
    )
    assert [one.name for one in grouped(sweep, [])[0].variants] == ["synchronous", "Dorylus (bound only)"]
    assert sweep.runs[1].label == "Dorylus (bound only), gcn, seed 0"
    assert sweep.axes == ("model.name", "pipeline.mode", "pipeline.staleness")
