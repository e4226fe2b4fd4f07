"""What a sweep has shown, on histories with known answers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from dorylax.experiments.analysis import AT_LEAST, AT_MOST, RunHistory, Variant, analyse, compare
from dorylax.experiments.sentences import sentences
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


@functools.cache
def _sweep(compare: str = _COMPARE) -> Sweep:
    return read(_TEXT + compare, "s.yaml", "s")


def _done(
    run: Run,
    accuracies: Sequence[float | None],
    seconds: float = 1.0,
    dollars: float | None = 1.0,
    test: float | None = 0.8,
) -> RunHistory:
    """A run with these validation accuracies, each epoch with so many seconds and dollars."""
    history = [
        EpochRecord(epoch, 1.0, value, value, value, seconds, None if dollars is None else dollars * (epoch + 1))
        for epoch, value in enumerate(accuracies)
    ]
    return RunHistory(run, history, {"test_accuracy": test})


def _crossing_at(epochs: int, length: int = 20) -> list[float]:
    """Reaches 0.9 so that the mean over three epochs does after so many."""
    return [0.1] * (epochs - 3) + [0.9] * (length - epochs + 3)


def _study(sweep: Sweep, **asynchronous: Any) -> list[RunHistory]:
    """Synchronous runs are at 0.9 after 5 epochs; the others, unless told otherwise, after 10 of half the time."""
    given: dict[str, Any] = {"accuracies": _crossing_at(10), "seconds": 0.5, "dollars": 0.25, **asynchronous}
    return [
        _done(run, _crossing_at(5)) if run.setting["pipeline.mode"] == "pipe" else _done(run, **given)
        for run in sweep.runs
    ]


def test_groups_hold_what_is_compared() -> None:
    groups = analyse(_sweep(), _study(_sweep()))
    assert [group.name for group in groups] == ["gcn", "gat"]
    assert [[one.name for one in group.variants] for group in groups] == [["pipe", "async S=1"]] * 2
    assert [[one.is_baseline for one in group.variants] for group in groups] == [[True, False]] * 2
    assert [one.planned for one in groups[0].variants] == [2, 2]
    assert [run.seed for run in groups[1].variants[0].runs] == [0, 1]
    assert groups[0].target == pytest.approx(0.89)


def test_what_was_published_stands_beside_its_variant() -> None:
    points = "[{at: {model.name: gat, pipeline.mode: async}, epochs_to_target_ratio: 1.5}]"
    sweep = _sweep(f"{_COMPARE}published: {{source: a paper, points: {points}}}\n")
    gcn, gat = analyse(sweep, _study(sweep))
    assert (gcn.published, gat.published, gat.source) == ([], ["epochs"], "a paper")
    assert [dict(one.published) for one in gat.variants] == [{}, {"epochs_to_target_ratio": 1.5}]
    assert analyse(_sweep(), [])[1].source is None


def test_without_a_comparison_all_is_one_group() -> None:
    sweep = _sweep("")
    (group,) = analyse(sweep, _study(sweep))
    assert (group.name, group.target, sentences(group)) == ("", None, [])
    assert [one.name for one in group.variants] == ["gcn, pipe", "gcn, async S=1", "gat, pipe", "gat, async S=1"]
    assert all(one.compared is None and not one.is_baseline for one in group.variants)


def test_ratios_to_the_target() -> None:
    base, other = analyse(_sweep(), _study(_sweep(), test=0.802))[0].variants
    assert (base.compared.epochs, base.compared.seconds, base.compared.dollars) == (5.0, 5.0, 5.0)
    assert base.compared.epochs_ratio is base.compared.accuracy is base.compared.value_ratio is None
    found = other.compared
    assert (found.epochs, found.seconds, found.dollars, found.seeds) == (10.0, 5.0, 2.5, 2)
    assert (found.reached, found.baseline_reached, found.judged, found.sign) == (2, 2, 2, "")
    for ratio, value in ((found.epochs_ratio, 2.0), (found.seconds_ratio, 1.0), (found.dollars_ratio, 0.5)):
        assert (ratio.estimate, ratio.low, ratio.high) == (value, value, value)
    assert found.value_ratio == 2.0
    assert found.accuracy.estimate == pytest.approx(0.002)
    assert found.as_accurate


def test_the_sentence_says_it_in_words() -> None:
    text, rough = sentences(analyse(_sweep(), _study(_sweep(), test=0.802))[0])
    assert rough == "Intervals of 2 seeds are rough: Student's t with 1 degree of freedom in place of the bootstrap."
    assert text == (
        "async S=1 needs 2.00× (2.00–2.00) the epochs of pipe, 1.00× (1.00–1.00) the time and "
        "0.50× (0.50–0.50) the cost; it is as accurate: +0.20 points (+0.20 to +0.20)."
    )


def test_one_seed_has_no_intervals_and_proves_nothing() -> None:
    done = [one for one in _study(_sweep(), test=0.802) if one.seed == 0]
    group = analyse(_sweep(), done)[0]
    assert sentences(group) == [
        "async S=1 needs 2.00× the epochs of pipe, 1.00× the time and 0.50× the cost; on this one seed its accuracy "
        "differs by +0.20 points.",
        "What rests on one seed has no interval, and is not certain.",
    ]
    assert group.variants[1].compared.as_accurate is None


@pytest.mark.parametrize(("test", "words"), [(0.82, "is more accurate: +2.00"), (0.78, "is less accurate: -2.00")])
def test_the_sentence_says_which_is_more_accurate(test: float, words: str) -> None:
    assert words in sentences(analyse(_sweep(), _study(_sweep(), test=test))[0])[0]


def test_accuracies_that_may_differ_or_not() -> None:
    done = [
        _done(run, _crossing_at(5), test=0.8 + (0.02 if run.config.train.seed else -0.02) * (not _is_pipe(run)))
        for run in _sweep().runs
    ]
    assert "it may differ in accuracy: +0.00 points (-25.41 to +25.41)" in sentences(analyse(_sweep(), done)[0])[0]


def _is_pipe(run: Run) -> bool:
    return run.setting["pipeline.mode"] == "pipe"


def test_a_run_that_never_gets_there_counts_with_all_its_epochs_where_that_is_more() -> None:
    """Four times the epochs, and no claim where a bound says nothing: twice the time, but 0.6 of the cost."""
    group = analyse(_sweep(), _study(_sweep(), accuracies=[0.5] * 20, dollars=0.15))[0]
    found = group.variants[1].compared
    assert (found.epochs, found.seconds, found.dollars) == (None, None, None)  # it is nobody's time to the target
    assert (found.epochs_ratio.estimate, found.reached, found.sign) == (4.0, 0, AT_LEAST)
    assert found.dollars_ratio is found.value_ratio is None
    assert sentences(group)[0].startswith(
        "async S=1 needs at least 4.00× (4.00–4.00) the epochs of pipe and at least 2.00× (2.00–2.00) the time; "
        "it reaches the target on 0 of 2 seeds, pipe on 2; it"
    )


def test_what_ends_early_without_getting_there_has_gained_nothing() -> None:
    group = analyse(_sweep(), _study(_sweep(), accuracies=[0.5] * 4))[0]
    found = group.variants[1].compared
    assert found.epochs_ratio is found.seconds_ratio is found.dollars_ratio is found.value_ratio is None
    text, *_ = sentences(group)
    assert text.startswith("async S=1 reaches the target on 0 of 2 seeds, pipe on 2: what it takes is not compared; it")
    assert "×" not in text


def test_a_baseline_that_never_gets_there_makes_upper_bounds() -> None:
    sweep = _sweep("compare: {baseline: {pipeline.mode: pipe}, target: 0.85}\n")

    def done(other: Sequence[float], base: Sequence[float] = (0.5,) * 20) -> list[RunHistory]:
        return [_done(run, base if _is_pipe(run) else other) for run in sweep.runs]

    group = analyse(sweep, done(_crossing_at(5)))[0]
    assert group.target == 0.85
    found = group.variants[1].compared
    assert found.sign == AT_MOST
    assert sentences(group)[0].startswith("async S=1 needs at most 0.25× (0.25–0.25) the epochs of pipe, at most")
    assert "; it reaches the target on 2 of 2 seeds, pipe on 0; it" in sentences(group)[0]
    longer = analyse(sweep, done(_crossing_at(5), [0.5] * 4))[0].variants[1].compared
    assert longer.epochs_ratio is None  # that the baseline ended sooner says nothing


@pytest.mark.parametrize(
    ("reaching", "sign", "judged"),
    [
        ({"pipe": {0, 1}, "async": {0}}, AT_LEAST, 2),
        ({"pipe": {0}, "async": {0}}, "", 1),  # on the other seed neither does
        ({"pipe": {0}, "async": {0, 1}}, AT_MOST, 2),
        ({"pipe": {0}, "async": {1}}, "", 2),
    ],
    ids=["variant fails", "both fail", "baseline fails", "each fails"],
)
def test_on_which_seeds_ratios_rest(reaching: dict[str, set[int]], sign: str, judged: int) -> None:
    sweep = _sweep("compare: {baseline: {pipeline.mode: pipe}, target: 0.85}\n")
    done = [
        _done(run, _crossing_at(5) if run.config.train.seed in reaching[run.setting["pipeline.mode"]] else [0.5] * 20)
        for run in sweep.runs
    ]
    found = analyse(sweep, done)[0].variants[1].compared
    assert (found.sign, found.judged, found.reached) == (sign, judged, len(reaching["async"]))
    if reaching["pipe"].isdisjoint(reaching["async"]):
        assert found.epochs_ratio is None
    else:
        assert found.epochs_ratio.seeds == judged


def test_runs_that_cost_nothing() -> None:
    found = analyse(_sweep(), _study(_sweep(), dollars=None))[0]
    compared = found.variants[1].compared
    assert compared.dollars is compared.dollars_ratio is compared.value_ratio is None
    assert compared.seconds_ratio is not None
    assert "cost" not in sentences(found)[0]


def test_without_a_test_mask_no_accuracies_are_compared() -> None:
    group = analyse(_sweep(), _study(_sweep(), test=None))[0]
    compared = group.variants[1].compared
    assert compared.accuracy is compared.as_accurate is None
    assert sentences(group)[0].endswith("the cost.")


def test_only_seeds_that_both_have() -> None:
    done = [one for one in _study(_sweep()) if _is_pipe(one.run) or one.seed == 1]
    base, other = analyse(_sweep(), done)[0].variants
    assert (base.compared.seeds, other.compared.seeds, len(other.runs), other.planned) == (2, 1, 1, 2)
    apart = [one for one in _study(_sweep()) if one.seed == _is_pipe(one.run)]
    assert analyse(_sweep(), apart)[0].variants[1].compared is None


def test_without_a_baseline_run_nothing_is_compared() -> None:
    done = [one for one in _study(_sweep()) if not _is_pipe(one.run)]
    group = analyse(_sweep(), done)[0]
    assert (group.target, sentences(group)) == (None, [])
    assert [one.compared for one in group.variants] == [None, None]
    assert analyse(_sweep(), [])[1].variants[0].runs == ()


def test_epochs_without_an_evaluation_are_counted() -> None:
    """Every second epoch is evaluated: the third evaluation at 0.9 is after epoch 8."""
    run = _sweep().runs[0]
    one = _done(run, [None, 0.1, None, 0.9, None, 0.9, None, 0.9, None, 0.9])
    assert [record.epoch for record in one.evaluated] == [1, 3, 5, 7, 9]
    found = one.crossing(0.85)
    assert (found.epochs, found.censored) == (8, False)
    assert one.seconds_until(8) == 8.0
    assert one.dollars_until(8) == 8.0
    missed = one.crossing(0.95)
    assert (missed.epochs, missed.censored) == (10, True)


def test_runs_that_were_never_evaluated_are_censored() -> None:
    mine, theirs = (_done(run, [None] * 4) for run in _sweep().runs[:2])
    found = compare([mine], [theirs], 0.5)
    assert found is None  # other seeds
    found = compare([mine], [mine], 0.5, is_baseline=True)
    assert (found.epochs, found.reached, found.judged) == (None, 0, 0)


def test_variants_keep_the_whole_setting() -> None:
    variant: Variant = analyse(_sweep(), [])[1].variants[1]
    assert variant.setting == {"model.name": "gat", "pipeline.mode": "async", "pipeline.staleness": 1}
