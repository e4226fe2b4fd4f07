"""What the printed table of a sweep says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dorylax.config import RunConfig
from dorylax.experiments.sweep import RunOutcome, Study
from dorylax.experiments.sweep_file import read
from dorylax.experiments.table import print_summary, summary_table, time_title


def test_times_of_two_clocks_are_told_apart() -> None:
    single, virtual = RunConfig.resolve(), RunConfig.resolve({"pipeline.clock": "virtual"})
    assert [time_title(configs) for configs in ([], [single], [virtual], [single, virtual])] == [
        "time per epoch",
        "time per epoch",
        "simulated time per epoch",
        "time per epoch (of either clock)",
    ]


def _rows(text: str, *summaries: dict[str, float | str] | None) -> list[list[str]]:
    """The cells of the table of a sweep, of whose runs None are those that failed."""
    sweep = read(text, "s.yaml", "s")
    outcomes = [
        RunOutcome(run, "failed", error="x") if summary is None else RunOutcome(run, "done", summary)
        for run, summary in zip(sweep.runs, summaries, strict=True)
    ]
    stream = io.StringIO()
    Console(file=stream, width=200).print(summary_table(sweep, outcomes, "title"))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith(("│", "┃"))]
    return [[cell.strip() for cell in line[1:-1].replace("┃", "│").split("│")] for line in lines]


_ONE = {"test_accuracy": 0.5, "final_loss": 1.0, "best_epoch": 3, "epochs": 8, "stopped": "epochs"}
_OTHER = {"test_accuracy": 0.7, "final_loss": 1.2, "best_epoch": 5, "epochs": 6, "stopped": "patience"}


def test_a_row_per_variant() -> None:
    titles, gcn, gat = _rows("grid: {model.name: [gcn, gat]}\nseeds: 2\n", _ONE, _OTHER, _ONE, None)
    assert titles == ["variant", "runs", "test accuracy", "final loss", "best epoch", "epochs"]
    assert gcn == ["gcn", "2/2", "60.0 ± 14.1 %", "1.1000 ± 0.1414", "4", "7*"]
    assert gat == ["gat", "1/2, 1 failed", "50.0 %", "1.0000", "3", "8"]


def test_columns_that_do_not_differ_are_told_below() -> None:
    sweep = read("grid: {model.name: [gcn, gat]}\n", "s.yaml", "s")
    outcomes = [
        RunOutcome(run, "done", {**_ONE, "test_accuracy": score})
        for run, score in zip(sweep.runs, (0.5, 0.6), strict=True)
    ]
    table = summary_table(sweep, outcomes, "title")
    assert [column.header for column in table.columns] == ["variant", "test accuracy"]
    assert table.caption == "the same for all: runs 1/1, final loss 1.0000, best epoch 3, epochs 8"


def test_a_printed_table_has_at_most_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "base: {pipeline.clock: virtual}\nseeds: 2\n"
        "zip:\n  - {optimizer.name: [adam, sgd], optimizer.learning_rate: [0.0123456, 0.03]}\n"
        "  - {pipeline.mode: [pipe, async], pipeline.freshness: [null, 0.5], pipeline.predict_weights: [null, linear]}\n"
    )
    sweep = read(text, "s.yaml", "s")
    names = ("val_accuracy", "test_accuracy", "final_loss", "best_epoch", "epochs", "seconds_per_epoch")
    outcomes = [RunOutcome(run, "done", dict.fromkeys(names, 0.1 * n)) for n, run in enumerate(sweep.runs)]
    print_summary(Study(sweep, outcomes, None), "title")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split("│")[1].strip() for line in lines if line.startswith("│")][:4] == [
        *("adam, learning_", "rate=0.0123456,", "pipe", "adam, learning_"),
    ]
    assert any("│ 45.0 ± 7.1 % │" in line for line in lines)


def test_the_size_of_test_sets_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = read("grid: {task.name: [vertex-classification, link-prediction]}\n", "s.yaml", "s")
    sizes = zip(sweep.runs, (1000, 64), strict=True)
    outcomes = [RunOutcome(run, "done", {**_ONE, "test_examples": size}) for run, size in sizes]
    print_summary(Study(sweep, outcomes, None), "title")
    assert "\ntested on 64 pairs or 1,000 vertices\n" in capsys.readouterr().out


def test_titles_are_folded_before_a_name_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "base: {pipeline.clock: virtual}\nseeds: 2\n"
        "zip: {pipeline.mode: [pipe, async], label: [functions, Dorylus (bound only)]}\n"
    )
    sweep = read(text, "s.yaml", "s")
    outcomes = [
        RunOutcome(
            run,
            "done",
            {
                **_ONE,
                **dict.fromkeys(("val_accuracy", "test_accuracy", "final_loss", "seconds_per_epoch"), 0.1 * place),
            },
        )
        for place, run in enumerate(sweep.runs)
    ]
    print_summary(Study(sweep, outcomes, None), "title")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("│ Dorylus (bound only) │") for line in lines)


def test_where_nothing_varies_a_row_per_seed_and_one_for_all() -> None:
    titles, *rows = _rows("seeds: [4, 5, 6]\n", _ONE, None, _OTHER)
    assert titles == ["seed", "run", "test accuracy", "final loss", "best epoch", "epochs"]
    assert rows == [
        ["4", "done", "50.0 %", "1.0000", "3", "8"],
        ["5", "failed", "–", "–", "–", "–"],
        ["6", "done", "70.0 %", "1.2000", "5", "6*"],
        ["mean ± std", "", "60.0 ± 14.1 %", "1.1000 ± 0.1414", "4", "7*"],
    ]
