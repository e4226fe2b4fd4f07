"""Verdicts and the sentence that answers a sweep's question, on histories with known answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from dorylax.experiments.analysis import Group, RunHistory, grouped, pool
from dorylax.experiments.conclusions import accuracy_verdict, answer, points, verdict, verdict_words
from dorylax.experiments.measures import MEASURES
from dorylax.experiments.sweep import Run, Sweep
from dorylax.experiments.sweep_file import read
from dorylax.runs.result import EpochRecord

TEXT = """\
base: {data.size: tiny, pipeline.clock: virtual}
zip:
  pipeline.mode: [pipe, async, async]
  pipeline.staleness: [null, 0, 1]
seeds: 5
compare: {baseline: {pipeline.mode: pipe}, target: 0.85}
"""
ONE = TEXT.replace("[pipe, async, async]", "[pipe, async]").replace("[null, 0, 1]", "[null, 1]")
GROUPS = ONE.replace("zip:", "grid: {model.name: [gcn, gat, sage]}\nzip:")
TIME = "the simulated time to 85.00 % validation accuracy"


def sweep(text: str = ONE, *, asks: str = "time", seeds: int = 5) -> Sweep:
    return read(text.replace("0.85}", f"0.85, asks: {asks}}}").replace("seeds: 5", f"seeds: {seeds}"), "s.yaml", "s")


def done(run: Run, epochs: int, seconds: float, test: float = 0.8, length: int = 20) -> RunHistory:
    """A run that reaches the target after so many epochs; 0 for never."""
    values = [0.1] * (epochs - 3) + [0.9] * (length - epochs + 3) if epochs else [0.1] * length
    noise = 1 + 0.01 * run.config.train.seed
    history = [
        EpochRecord(epoch, 1.0, value, value, value, seconds * noise, 0.1 * seconds * noise * (epoch + 1))
        for epoch, value in enumerate(values)
    ]
    return RunHistory(run, history, {"test_accuracy": test})


def groups_of(whole: Sweep, other: Callable[[Run], RunHistory], base: tuple[int, float] = (5, 1.0)) -> list[Group]:
    """Groups in which the baseline's runs take so many epochs of so many seconds."""
    return grouped(
        whole, [done(run, *base) if run.setting["pipeline.mode"] == "pipe" else other(run) for run in whole.runs]
    )


def answered(whole: Sweep, other: Callable[[Run], RunHistory], base: tuple[int, float] = (5, 1.0)) -> str:
    return answer(whole, groups_of(whole, other, base))


@pytest.mark.parametrize(
    ("asks", "epochs", "seconds", "words"),
    [
        ("time", 6, 0.5, f"Async S=1 is faster than pipe: 0.60 × {TIME} (5 seeds), as accurate."),
        (
            "time",
            10,
            1.0,
            f"No variant is faster than pipe: async S=1 comes closest with 2.00 × {TIME} (5 seeds), as accurate.",
        ),
        (
            "epochs",
            4,
            9.0,
            "Async S=1 needs fewer epochs than pipe: 0.80 × the epochs to 85.00 % validation accuracy (5 seeds)",
        ),
        (
            "cost",
            5,
            0.5,
            "Async S=1 is cheaper than pipe: 0.50 × the simulated cost to 85.00 % validation accuracy (5 seeds)",
        ),
        ("accuracy", 9, 9.0, "Async S=1 is as accurate as pipe: +0.00 points of test accuracy (5 seeds)."),
    ],
)
def test_each_question_has_its_answer(asks: str, epochs: int, seconds: float, words: str) -> None:
    assert answered(sweep(asks=asks), lambda run: done(run, epochs, seconds)).startswith(words)


def test_a_small_test_set_is_told() -> None:
    """The count is that of the summary, which runs of earlier versions lack."""
    for size, words in ((99, " The test set has only 99 vertices."), (100, ""), (None, "")):
        text = answered(sweep(), lambda run, size=size: of_test_set(size, done(run, 6, 0.5)))
        assert text.endswith(f"as accurate.{words}")
    text = answered(sweep(), lambda run: of_test_set(40 + run.config.train.seed, done(run, 6, 0.5)))
    assert text.endswith(" The smallest test set has only 40 vertices.")


def of_test_set(size: int | None, run: RunHistory) -> RunHistory:
    return dataclasses.replace(run, summary={**run.summary, "test_examples": size})


def test_real_time_is_not_called_simulated() -> None:
    whole = sweep(ONE.replace("virtual", "real"))
    assert "0.60 × the time to" in answered(whole, lambda run: done(run, 6, 0.5))


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (0.9, "Async S=1 is more accurate than pipe: +10.0 points"),
        (0.7, "No variant is as accurate as pipe: async S=1"),
    ],
)
def test_accuracies_that_differ(test: float, words: str) -> None:
    assert answered(sweep(asks="accuracy"), lambda run: done(run, 5, 1.0, test)).startswith(words)


def test_a_faster_variant_that_is_less_accurate_comes_after_one_that_is_as_accurate() -> None:
    text = answered(
        sweep(TEXT),
        lambda run: done(run, 5, 0.5, 0.7) if run.setting["pipeline.staleness"] else done(run, 5, 0.8),
    )
    assert text.startswith("Async S=0 is faster than pipe: 0.80 × ")
    assert text.endswith(', as accurate. Faster, too: "async S=1".')


def test_an_interval_on_both_sides_of_1_is_no_claim() -> None:
    text = answered(sweep(), lambda run: done(run, 5, 0.5 if run.config.train.seed % 2 else 1.6))
    assert text.startswith("It is undecided whether async S=1 is faster than pipe: 1.1")
    assert " (95 % interval 0." in text
    one = answered(sweep(seeds=1), lambda run: done(run, 5, 0.5))
    assert one == f"It is undecided whether async S=1 is faster than pipe: 0.50 × {TIME} (one seed)."


def test_where_no_run_reaches_the_target_nothing_is_compared() -> None:
    """However much shorter and cheaper runs are."""
    for asks in ("time", "epochs", "cost", "accuracy"):
        text = answered(sweep(asks=asks), lambda run: done(run, 0, 0.1, length=5), base=(0, 1.0))
        assert text == "No run reaches the target of 85.00 % validation accuracy: nothing is compared."
        (found,) = groups_of(sweep(asks=asks), lambda run: done(run, 0, 0.1, length=5), base=(0, 1.0))[0].findings
        assert verdict_words(found) == "not compared"
    text = answered(sweep(GROUPS), lambda run: done(run, 0, 0.1, length=5), base=(0, 1.0))
    assert text == "No run reaches its target in any group: nothing is compared."


def test_runs_that_end_early_without_reaching_it_have_failed() -> None:
    text = answered(sweep(), lambda run: done(run, 0, 0.1, length=5))
    assert text == "No variant is faster than pipe: async S=1 misses the target on 5 of 5 seeds."


def test_a_failure_is_told_beside_the_best() -> None:
    text = answered(sweep(TEXT), lambda run: done(run, 0 if run.setting["pipeline.staleness"] else 5, 0.5))
    assert text.endswith(", as accurate; async S=1 misses the target on 5 of 5 seeds.")


def test_groups_are_answered_together() -> None:
    text = answered(sweep(GROUPS), lambda run: done(run, 6, 0.5))
    assert text == (
        "On the mean over 3 groups, async S=1 is faster than pipe: 0.60 × the simulated time to the target (5 seeds), "
        "as accurate."
    )


def test_a_group_that_misses_the_target_is_a_failure_of_the_whole() -> None:
    """However much faster the variant is elsewhere."""

    def one(run: Run) -> RunHistory:
        return done(run, 0 if run.setting["model.name"] == "gat" else 5, 0.2)

    whole = sweep(GROUPS)
    groups = groups_of(whole, one)
    assert answer(whole, groups) == (
        "On the mean over 3 groups, no variant is faster than pipe: async S=1 misses the target in 1 of 3 groups."
    )
    (found,) = pool(groups)
    assert verdict_words(found) == "misses the target in 1 of 3 groups; as accurate"


def test_a_group_that_contradicts_the_mean_is_told() -> None:
    def one(run: Run) -> RunHistory:
        return done(run, 6, 1.0) if run.setting["model.name"] == "gat" else done(run, 5, 0.2)

    whole = sweep(GROUPS)
    groups = groups_of(whole, one)
    assert "no variant is faster than pipe in every group: async S=1 comes closest with 0.53 ×" in answer(whole, groups)
    (found,) = pool(groups)
    words = "depends on the group: faster in 2 of 3 groups, slower in 1; as accurate"
    assert verdict_words(found) == words


def test_before_anything_is_done_nothing_is_compared() -> None:
    whole = sweep()
    only = [done(run, 5, 1.0) for run in whole.runs if run.setting["pipeline.mode"] == "pipe"]
    for runs in ([], only):
        assert answer(whole, grouped(whole, runs)).startswith("Nothing is compared yet: ")


def judged_by(metric: str, run: Run) -> RunHistory:
    usual = done(run, 5, 1.0 if run.setting["pipeline.mode"] == "pipe" else 0.5)
    history = [
        EpochRecord.judged(one.epoch, one.loss, [one.val_accuracy] * 3, metric, seconds=one.seconds)
        for one in usual.history
    ]
    return RunHistory(run, history, {"metric": metric, "test_score": 0.8})


def test_the_answer_names_the_metric() -> None:
    whole = sweep()
    for metric, words in (
        ("macro_f1", "Async S=1 is faster than pipe: 0.50 × the simulated time to 85.00 % validation macro-F1 "),
        ("mae", "Nothing is compared: runs are judged by MAE, and only metrics from 0 to 1 have targets."),
    ):
        assert answer(whole, grouped(whole, [judged_by(metric, run) for run in whole.runs])).startswith(words)


def test_runs_without_cost_are_not_compared_by_cost() -> None:
    def free(run: Run) -> RunHistory:
        one = done(run, 5, 1.0)
        return dataclasses.replace(one, history=[dataclasses.replace(record, dollars=None) for record in one.history])

    text = answered(sweep(asks="cost"), free)
    assert text == "No variant is cheaper than pipe: no number is known on both sides."


def test_a_sweep_without_a_question_gets_a_baseline_or_says_how_to_ask() -> None:
    one = read("grid: {model.name: [gcn, gat]}\n", "s.yaml", "s")
    assert one.comparison is not None
    assert (one.comparison.baseline, one.comparison.asks, one.comparison.stated) == (
        {"model.name": "gcn"},
        "accuracy",
        False,
    )
    two = read("grid: {model.name: [gcn, gat], model.hidden_features: [8, 16]}\n", "s.yaml", "s")
    assert answer(two, grouped(two, [])) == (
        "Nothing is compared: name a baseline in the sweep file, as in `compare: {baseline: {model.name: gcn}}`."
    )
    seeds = read("seeds: 3\n", "s.yaml", "s")
    assert answer(seeds, grouped(seeds, [])) == ""


@pytest.mark.parametrize(
    ("value", "text"), [(0.012, "+1.2"), (0.0004, "+0.04"), (-0.0004, "-0.04"), (0.0, "+0.00"), (-0.0006, "-0.1")]
)
def test_small_differences_keep_their_sign_and_two_digits(value: float, text: str) -> None:
    assert points(value) == text


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([0.802, 0.8021], "as accurate"),
        ([0.806, 0.803], "accuracy undecided"),
        ([0.83, 0.831], "more accurate"),
        ([0.77, 0.771], "less accurate"),
    ],
)
def test_as_accurate_means_the_whole_interval_within_half_a_point(values: list[float], word: str) -> None:
    whole = sweep(seeds=2)
    (group,) = groups_of(whole, lambda run: done(run, 5, 1.0, values[run.config.train.seed]))
    (found,) = group.findings
    assert accuracy_verdict(found) == word


# Simulations.

_SIMULATED = """\
simulate: true
grid: {graph.name: [amazon, friendster]}
zip: {simulation.backend: [functions, cpu]}
compare: {baseline: {simulation.backend: functions}, asks: ASKS}
"""


def simulated(asks: str, ratios: tuple[float, float], published: str = "") -> tuple[Sweep, list[Group]]:
    """One seed; `ratios` are cpu's on both graphs, and its value is the inverse."""
    whole = read(_SIMULATED.replace("ASKS", asks) + published, "s.yaml", "s")
    runs = []
    for run in whole.runs:
        cpu = run.setting["simulation.backend"] == "cpu"
        ratio = ratios[run.setting["graph.name"] == "friendster"] if cpu else 1.0
        measures = {"epoch_seconds": ratio, "seconds": ratio, "dollars": ratio, "value": 1 / ratio}
        runs.append(RunHistory(run, [], dict.fromkeys(MEASURES, 0.5) | measures))
    return whole, grouped(whole, runs)


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ("time", "cpu is faster than functions: 0.50 × the simulated time of an epoch (one seed)."),
        ("cost", "cpu is cheaper than functions: 0.50 × the simulated cost (one seed)."),
        ("value", "cpu has more value than functions: 2.00 × the simulated value (one seed)."),
    ],
)
def test_simulated_runs_are_answered_without_a_target(asks: str, words: str) -> None:
    assert answer(*simulated(asks, (0.5, 0.5))) == f"On the mean over 2 groups, {words}"


def test_simulated_groups_may_disagree() -> None:
    whole, groups = simulated("time", (0.5, 1.2))
    assert "no variant is faster than functions in every group: cpu comes closest with 0.85 ×" in answer(whole, groups)
    (found,) = pool(groups)
    assert verdict(found) == "depends on the group"


def test_published_ratios_are_the_question_if_there_are_some() -> None:
    points = ", ".join(
        f"{{at: {{graph.name: {graph}, simulation.backend: cpu}}, seconds_ratio: {ratio}}}"
        for graph, ratio in (("amazon", 0.5), ("friendster", 2))
    )
    whole, groups = simulated("time", (0.6, 1.0), f"published: {{source: a paper, points: [{points}]}}\n")
    assert answer(whole, groups) == (
        "1 of 2 published ratios are reproduced within 30 %; the median deviation is 55 %."
    )
