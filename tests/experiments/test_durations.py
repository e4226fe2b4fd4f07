"""How long runs take, by those that are done."""

from __future__ import annotations

from dorylax.experiments.execution import expected_seconds
from dorylax.experiments.sweep import RunOutcome
from dorylax.experiments.sweep_file import read

_RUNS = read("grid: {model.name: [gcn, gat, mlp]}\nseeds: 3\n", "s.yaml", "s").runs


def test_the_median_of_the_setting_or_else_of_all() -> None:
    seconds = [1.0, 9.0, 2.0, 30.0]
    outcomes = [
        RunOutcome(run, "done", {"timings": {"wall": one}}) for run, one in zip(_RUNS[:4], seconds, strict=True)
    ]
    others = [RunOutcome(_RUNS[4], "open"), RunOutcome(_RUNS[5], "failed", error="x"), RunOutcome(_RUNS[8], "open")]
    known = expected_seconds([*outcomes, *others])
    assert [known[_RUNS[k].key] for k in (0, 4, 8)] == [2.0, 30.0, 5.5]


def test_where_nothing_is_known() -> None:
    outcomes = [RunOutcome(_RUNS[0], "done", {}), RunOutcome(_RUNS[1], "done", {"timings": None})]
    assert expected_seconds(outcomes) == {}
