"""What a sweep's question is answered with, on histories with known answers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from dorylax.experiments.analysis import RunHistory, analyse
from dorylax.experiments.answer import answer, answer_of_simulated
from dorylax.experiments.report.tables import accuracy_table, comparison_table, markdown
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sentences import sentences
from dorylax.experiments.simulated_analysis import SimulatedGroup, SimulatedVariant
from dorylax.experiments.sweep import Comparison, Run, Sweep
from dorylax.experiments.sweep_file import read
from dorylax.runs.result import EpochRecord

TEXT = """\
base: {data.size: tiny}
zip:
  pipeline.mode: [pipe, async, async]
  pipeline.staleness: [null, 0, 1]
seeds: 5
compare: {baseline: {pipeline.mode: pipe}, target: 0.85}
"""
ONE = TEXT.replace("[pipe, async, async]", "[pipe, async]").replace("[null, 0, 1]", "[null, 1]")
GROUPS = ONE.replace("zip:", "grid: {model.name: [gcn, gat, sage]}\nzip:")


def sweep(text: str = ONE, *, asks: str = "time", seeds: int = 5) -> Sweep:
    return read(text.replace("0.85}", f"0.85, asks: {asks}}}").replace("seeds: 5", f"seeds: {seeds}"), "s.yaml", "s")


def done(run: Run, epochs: int, seconds: float, test: float = 0.8, length: int = 20) -> RunHistory:
    """A run that reaches the target after so many epochs; after none: never."""
    values = [0.1] * (epochs - 3) + [0.9] * (length - epochs + 3) if epochs else [0.1] * length
    noise = 1 + 0.01 * run.config.train.seed
    history = [
        EpochRecord(epoch, 1.0, value, value, value, seconds * noise, 0.1 * seconds * noise * (epoch + 1))
        for epoch, value in enumerate(values)
    ]
    return RunHistory(run, history, {"test_accuracy": test})


def answered(whole: Sweep, other: Callable[[Run], RunHistory], base: tuple[int, float] = (5, 1.0)) -> str:
    """The answer where the baseline's runs take so many epochs of so many seconds."""
    runs = [done(run, *base) if run.setting["pipeline.mode"] == "pipe" else other(run) for run in whole.runs]
    return answer(analyse(whole, runs), whole.comparison)


TARGET = "the target of 85.00 % validation accuracy"


def test_what_needs_less_time() -> None:
    text = answered(sweep(), lambda run: done(run, 6, 0.5))
    assert text == (
        f"async S=1 needs less time than pipe to {TARGET} (0.60×, 0.60 to 0.60). "
        "async S=1 is as accurate (+0.0 points, +0.0 to +0.0)."
    )


@pytest.mark.parametrize(
    ("asks", "epochs", "seconds", "words"),
    [
        ("time", 10, 1.0, f"async S=1 needs more time than pipe to {TARGET} (2.00×, "),
        ("epochs", 10, 0.1, f"async S=1 needs more epochs than pipe to {TARGET} (2.00×, "),
        ("epochs", 4, 9.0, f"async S=1 needs fewer epochs than pipe to {TARGET} (0.80×, "),
        ("cost", 5, 0.5, f"async S=1 costs less than pipe to {TARGET} (0.50×, "),
        ("accuracy", 9, 9.0, "async S=1 is as accurate as pipe (+0.0 points, "),
    ],
)
def test_each_question_has_its_answer(asks: str, epochs: int, seconds: float, words: str) -> None:
    assert answered(sweep(asks=asks), lambda run: done(run, epochs, seconds)).startswith(words)


def judged_by(metric: str, run: Run, epochs: int, seconds: float) -> RunHistory:
    """As `done`, by another metric."""
    usual = done(run, epochs, seconds)
    history = [
        EpochRecord.judged(one.epoch, one.loss, [one.val_accuracy] * 3, metric, seconds=one.seconds)
        for one in usual.history
    ]
    return RunHistory(run, history, {"metric": metric, "test_score": 0.8})


def test_it_is_said_in_the_metric_that_runs_are_judged_by() -> None:
    whole = sweep()
    for metric, epochs, words in (
        ("macro_f1", 5, "async S=1 needs less time than pipe to the target of 85.00 % validation macro-F1 (0.50×, "),
        ("roc_auc", 0, "No run reaches the target of 85.00 % validation ROC-AUC: nothing is claimed."),
        ("mae", 5, "Nothing is compared: runs are judged by MAE, and only metrics from 0 to 1 have targets."),
    ):
        runs = [
            judged_by(metric, run, epochs, 1.0 if run.setting["pipeline.mode"] == "pipe" else 0.5) for run in whole.runs
        ]
        groups = analyse(whole, runs)
        text = answer(groups, whole.comparison)
        assert text.startswith(words)
        tables = [comparison_table(groups[0]), accuracy_table(groups[0])]
        said = " ".join([text, *sentences(groups[0]), *(markdown(table) for table in tables if table is not None)])
        assert "validation accuracy" not in said
        assert "test accurac" not in said
        assert (tables == [None, None]) is (metric == "mae")


@pytest.mark.parametrize(("test", "words"), [(0.9, "is more accurate than pipe"), (0.7, "is less accurate than pipe")])
def test_which_is_more_accurate(test: float, words: str) -> None:
    assert words in answered(sweep(asks="accuracy"), lambda run: done(run, 5, 1.0, test))


def test_what_an_interval_leaves_open_is_undecided() -> None:
    text = answered(sweep(), lambda run: done(run, 5, 0.5 if run.config.train.seed % 2 else 1.6))
    assert text.startswith(f"It is undecided whether async S=1 needs less time than pipe to {TARGET} (1.")
    one = answered(sweep(seeds=1), lambda run: done(run, 5, 0.5))
    assert one.startswith(
        f"It is undecided whether async S=1 needs less time than pipe to {TARGET} (0.50×, on one seed)."
    )
    two = answered(sweep(seeds=2), lambda run: done(run, 5, 0.9 + 0.05 * run.config.train.seed))
    assert "needs less time than pipe" in two
    assert ", on 2 seeds roughly " in two


def test_where_nothing_reaches_the_target_nothing_is_claimed() -> None:
    """However much shorter and cheaper runs are."""
    for asks in ("time", "epochs", "cost", "accuracy"):
        text = answered(sweep(asks=asks), lambda run: done(run, 0, 0.1, length=5), base=(0, 1.0))
        assert text == f"No run reaches {TARGET}: nothing is claimed."
    groups = answered(sweep(GROUPS), lambda run: done(run, 0, 0.1, length=5), base=(0, 1.0))
    assert groups == "No run in any of 3 groups reaches its target: nothing is claimed."


def test_runs_that_end_early_without_reaching_it_are_no_gain() -> None:
    text = answered(sweep(), lambda run: done(run, 0, 0.1, length=5))
    assert text.startswith(
        "async S=1 reaches the target less often than pipe (on 0 of 5 seeds, pipe on 5). async S=1 is as accurate"
    )
    assert "×" not in text


def test_runs_that_cost_nothing_are_not_compared_by_cost() -> None:
    def free(run: Run) -> RunHistory:
        one = done(run, 5, 1.0)
        return dataclasses.replace(one, history=[dataclasses.replace(record, dollars=None) for record in one.history])

    text = answered(sweep(asks="cost"), free)
    assert text.startswith("async S=1 cannot be compared with pipe (runs have no cost). async S=1 is as accurate")
    groups = answered(sweep(GROUPS, asks="cost"), free)
    assert "async S=1 cannot be compared with pipe (runs have no cost). async S=1 is as accurate" in groups


def test_several_settings_are_told_by_verdict() -> None:
    text = answered(sweep(TEXT), lambda run: done(run, 5, 0.5 if run.setting["pipeline.staleness"] else 1.5))
    first, *_ = text.split(". ")
    assert re.fullmatch(
        r"async S=1 needs less time than pipe to the target of 85\.00 % validation accuracy \(0\.50×, .*\); "
        r"async S=0 needs more \(1\.50×, .*\)",
        text[: text.index("). ") + 1],
    ), first


def test_many_settings_are_counted() -> None:
    text = ONE.replace("[pipe, async]", "[pipe" + ", async" * 6 + "]").replace(
        "[null, 1]", "[null" + "".join(f", {bound}" for bound in range(6)) + "]"
    )
    said = answered(sweep(text), lambda run: done(run, 5, 0.5))
    assert " and 3 others need less time than pipe to the target" in said
    assert said.endswith(".")


def test_groups_are_answered_together() -> None:
    text = answered(sweep(GROUPS), lambda run: done(run, 6, 0.5))
    assert text.startswith("On the mean over 3 groups async S=1 needs less time than pipe to the target (0.60×, ")
    assert "async S=1 needs less in 3 of the 3 groups, more in none and is as accurate" in text


@pytest.mark.parametrize("fails", [True, False], ids=["fails in one", "needs more in one"])
def test_a_gain_that_not_every_group_has_depends_on_the_group(fails: bool) -> None:
    def one(run: Run) -> RunHistory:
        if run.setting["model.name"] == "gat":
            return done(run, 0, 0.1) if fails else done(run, 6, 1.0)
        return done(run, 5, 0.2)

    text = answered(sweep(GROUPS), one)
    assert "it depends on the group whether async S=1 needs less time than pipe to the target" in text
    assert ("over the 2 of 3 groups in which both reach the target" in text) == fails


def test_before_anything_is_done_nothing_can_be_said() -> None:
    whole = sweep()
    assert answer(analyse(whole, []), whole.comparison).startswith("Nothing can be said yet: ")
    only = [done(run, 5, 1.0) for run in whole.runs if run.setting["pipeline.mode"] == "pipe"]
    assert answer(analyse(whole, only), whole.comparison).startswith("Nothing can be said yet: ")
    assert answer_of_simulated([], whole.comparison).startswith("Nothing can be said yet: ")


def simulated(name: str, found: dict[str, float], **ratios: Interval) -> SimulatedVariant:
    return SimulatedVariant(name, {0: found}, 1, is_baseline=not ratios, ratios=ratios, published={})


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ("time", "cpu needs more time than functions for an epoch (2.00×, on one seed)."),
        ("cost", "cpu costs less than functions (0.50×, 0.40 to 0.60)."),
        ("value", "It is undecided whether cpu has more value than functions (1.00×, 0.90 to 1.10)."),
    ],
)
def test_of_simulated_runs(asks: str, words: str) -> None:
    ratios = {
        "epoch_seconds": Interval(2.0, 2.0, 2.0, 1),
        "dollars": Interval(0.5, 0.4, 0.6, 5),
        "value": Interval(1.0, 0.9, 1.1, 5),
    }
    group = SimulatedGroup("", (simulated("functions", {}), simulated("cpu", {}, **ratios)), None)
    comparison = Comparison(("simulation.backend",), {"simulation.backend": "functions"}, 0.01, None, asks=asks)
    assert answer_of_simulated([group], comparison) == words


def test_simulated_groups_may_disagree() -> None:
    base = simulated("functions", {"epoch_seconds": 1.0})
    groups = [
        SimulatedGroup(
            name,
            (base, simulated("cpu", {"epoch_seconds": ratio}, epoch_seconds=Interval(ratio, ratio, ratio, 1))),
            None,
        )
        for name, ratio in (("small", 0.5), ("large", 2.0))
    ]
    comparison = Comparison(("simulation.backend",), {"simulation.backend": "functions"}, 0.01, None)
    assert answer_of_simulated(groups, comparison) == (
        "On the mean over 2 groups it depends on the group whether cpu needs less time than functions for an epoch "
        "(1.25×, on one seed). cpu needs less in 1 of the 2 groups, more in 1."
    )


def test_what_is_asked_is_checked() -> None:
    with pytest.raises(Exception, match=r"s\.yaml:6: asks must be time or epochs or cost or accuracy, got 'speed'"):
        sweep(asks="speed")
