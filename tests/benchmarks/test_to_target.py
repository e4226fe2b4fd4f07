"""Output of runs to a target accuracy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


from harness import accuracy_runs
from harness.accuracy_runs import MARGIN, Run, best, chosen, reached, targets_of


def run(name: str, *accuracies: float, set_up: float = 0.0, pace: float = 1.0) -> Run:
    """A run that takes two steps, and `pace` seconds of two cores, between evaluations."""
    points = [[2 * k, pace * k, 2 * pace * k, value, 100 * value] for k, value in enumerate(accuracies, 1)]
    return Run({"name": name}, (set_up, 3 * set_up), points)


def test_the_best_is_one_that_lasts() -> None:
    assert best(run("a", 0.1, 0.9, 0.1, 0.4, 0.5, 0.6)) == pytest.approx(0.5)
    assert best(run("a", 0.2, 0.4)) == pytest.approx(0.3)  # as many as there are
    assert accuracy_runs.test_at_best(run("a", 0.1, 0.9, 0.4)) == pytest.approx(90)


def test_the_target_is_within_everybodys_reach() -> None:
    trials = {
        "one": [run("a", *[0.9] * 3), run("b", *[0.7] * 3)],
        "other": [run("c", *[0.6] * 3), run("d", *[0.8] * 3)],
    }
    assert targets_of(trials) == pytest.approx([0.8 - MARGIN, 0.9 - 2 * MARGIN])
    assert targets_of({"one": trials["one"]}) == pytest.approx([0.9 - MARGIN])


def test_what_it_took() -> None:
    found = reached(run("a", 0.1, 0.7, 0.7, 0.7, 0.9, set_up=10.0, pace=0.5), 0.65)
    assert found == (8, 2.0, 12.0, 34.0, False)  # the fourth evaluation is the last of the three
    assert reached(run("a", 0.1, 0.2, 0.3), 0.65) == (6, 3.0, 3.0, 6.0, True)


def test_the_settings_that_get_there_first_are_chosen() -> None:
    slow, quick = run("slow", *[0.8] * 5, pace=3.0), run("quick", *[0.8] * 5, set_up=1.0)
    never = run("never", *[0.5] * 5)
    assert chosen([never, slow, quick], 0.7) == {"name": "quick"}
    assert chosen([never, run("better", *[0.6] * 5)], 0.7) == {"name": "better"}
    assert chosen([slow, run("set up", *[0.8] * 5, set_up=100.0)], 0.7) == {"name": "slow"}
