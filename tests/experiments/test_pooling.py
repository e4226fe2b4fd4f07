"""Means over groups, on histories with known answers."""

from __future__ import annotations

import dataclasses

import pytest

from dorylax.experiments.analysis import RunHistory, analyse
from dorylax.experiments.pooling import pools
from dorylax.experiments.report.tables import pooled_accuracy_table, pooled_table
from dorylax.experiments.sweep import Run, Sweep
from dorylax.experiments.sweep_file import read
from dorylax.runs.result import EpochRecord

TEXT = """\
grid: {data.name: [cora, citeseer, pubmed], model.name: [gcn, sage]}
zip:
  pipeline.mode: [pipe, async]
  pipeline.staleness: [null, 1]
seeds: 2
compare: {baseline: {pipeline.mode: pipe}, over: [data.name]}
"""
EPOCHS = {"cora": 4, "citeseer": 6, "pubmed": 8}
"""To the target, of asynchronous runs; the others take 4."""


def sweep() -> Sweep:
    return read(TEXT, "s.yaml", "s")


def done(run: Run) -> RunHistory:
    asynchronous = run.setting["pipeline.mode"] == "async"
    epochs = EPOCHS[run.setting["data.name"]] if asynchronous else 4
    accuracies = [0.1] * (epochs - 3) + [0.9 + 0.01 * asynchronous] * (13 - epochs)
    history = [
        EpochRecord(epoch, 1.0, value, value, value, 0.5 if asynchronous else 1.0, None)
        for epoch, value in enumerate(accuracies)
    ]
    return RunHistory(run, history, {"test_accuracy": 0.8})


def test_each_group_counts_once() -> None:
    whole = sweep()
    # Of pubmed one seed only, which counts as much as the two of the others.
    runs = [run for run in whole.runs if run.setting["data.name"] != "pubmed" or run.config.train.seed == 0]
    gcn, sage = pools(analyse(whole, [done(run) for run in runs]), ("data.name",))
    assert (gcn.name, sage.name) == ("gcn", "sage")
    assert gcn.groups == ("cora, gcn", "citeseer, gcn", "pubmed, gcn")
    (variant,) = gcn.variants
    assert (variant.name, variant.groups, variant.compared, variant.fewer, variant.runs) == ("async S=1", 3, 3, 0, 5)
    assert (variant.reached, variant.baseline_reached) == (5, 5)
    assert not variant.means["epochs"].exists  # of pubmed there is none
    assert variant.means["epochs"].estimate == pytest.approx((1 + 1.5 + 2) / 3)
    assert variant.means["seconds"].estimate == pytest.approx((1 + 1.5 + 2) / 6)
    assert variant.means["best"].estimate == pytest.approx(0.01)
    assert variant.means["accuracy"].estimate == 0
    assert "dollars" not in variant.means


def test_the_table_has_them() -> None:
    whole = sweep()
    gcn, _ = pools(analyse(whole, [done(run) for run in whole.runs]), ("data.name",))
    table = pooled_table(gcn)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["epochs"] == "1.50× (1.50–1.50)"
    assert row["cost"] == "–"
    assert row["reach it"] == "6 of 6 (baseline: 6)"
    assert (row["less time in"], row["more time in"]) == ("2", "0")  # of pubmed both take as long
    accuracy = pooled_accuracy_table(gcn)
    row |= dict(zip(accuracy.columns, accuracy.rows[0], strict=True))
    assert row["best validation"] == "+1.0 (+1.0 to +1.0)"
    assert row["as accurate"] == "yes"
    assert "cora, gcn; citeseer, gcn; pubmed, gcn" in table.note


def test_a_group_in_which_a_run_never_gets_there_does_not_count_as_a_gain() -> None:
    """Its runs are short, which would pull the mean down."""
    whole = sweep()

    def one(run: Run) -> RunHistory:
        found = done(run)
        fails = run.setting["data.name"] == "pubmed" and run.setting["pipeline.mode"] == "async"
        history = [dataclasses.replace(record, val_accuracy=0.1) for record in found.history]
        return dataclasses.replace(found, history=history[:3]) if fails else found

    gcn, _ = pools(analyse(whole, [one(run) for run in whole.runs]), ("data.name",))
    (variant,) = gcn.variants
    assert (variant.groups, variant.compared, variant.fewer, variant.reached) == (3, 2, 1, 4)
    assert variant.means["epochs"].estimate == pytest.approx((1 + 1.5) / 2)
    assert variant.less["epochs"] == 0


def test_what_cannot_be_averaged_is_left_out() -> None:
    """Groups without a baseline's runs; pools of one group."""
    whole = sweep()
    some = [done(run) for run in whole.runs if run.setting["data.name"] == "cora"]
    assert pools(analyse(whole, some), ("data.name",)) == []
    assert pools(analyse(whole, [done(run) for run in whole.runs]), ()) == []
    assert pools(analyse(whole, []), ("data.name",)) == []
