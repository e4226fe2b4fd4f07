"""What runs to an accuracy say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


from harness import accuracy_runs
from harness.accuracy_runs import EXAMPLES, MARGIN, SPACES, Run, best, chosen, drawn, reached, targets_of
from sides import recorder as recorder_module
from sides.recorder import PATIENCE, Recorder


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


def test_all_sides_have_as_many_trials_of_their_own_space() -> None:
    for side, space in SPACES.items():
        tried = drawn(side, 6)
        assert len({str(sorted(one.items())) for one in tried}) == 6
        assert tried[0] == EXAMPLES[side]
        assert tried == drawn(side, 6)
        assert tried[:3] == drawn(side, 3)
        for one in tried[1:]:
            assert set(one) == set(space)
            assert all(value in space[name] for name, value in one.items())
    assert drawn("dorylax", 6) == drawn("dgl", 6) == drawn("pyg", 6)


def test_evaluations_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0

    def take(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(recorder_module, "now", lambda: (passed, 2 * passed))
    recorder = Recorder(limit=8.0)
    with recorder.training():
        take(2.0)
    recorder.judge(1, lambda: (take(16.0) or 0.5, 0.4))
    assert not recorder.enough
    with recorder.training():
        take(8.0)
    assert recorder.enough
    assert recorder.points == [(1, 2.0, 4.0, 0.5, 0.4)]


def trained_for(seconds: float, limit: float, patch: pytest.MonkeyPatch) -> Recorder:
    """A recorder after so many seconds of training."""
    recorder = Recorder(limit)
    clock = iter([(0.0, 0.0), (seconds, 0.0)])
    with patch.context() as inside:
        inside.setattr(recorder_module, "now", lambda: next(clock))
        with recorder.training():
            pass
    return recorder


def test_a_run_ends_that_gets_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = trained_for(60.0, 100.0, monkeypatch)
    for value in [0.5, *[0.4] * PATIENCE]:
        recorder.judge(1, lambda value=value: (value, 0.0))
    assert not recorder.enough
    recorder.judge(1, lambda: (0.4, 0.0))
    assert recorder.enough
    long = trained_for(60.0, 100.0, monkeypatch)
    for value in [*[0.1] * (3 * PATIENCE), 0.5, *[0.4] * (PATIENCE + 1)]:
        long.judge(1, lambda value=value: (value, 0.0))
    assert not long.enough  # it has taken longer than that to come so far


def test_no_run_ends_on_its_first_plateau(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = trained_for(49.0, 100.0, monkeypatch)
    for _ in range(10 * PATIENCE):
        recorder.judge(1, lambda: (0.1, 0.0))
    assert not recorder.enough
