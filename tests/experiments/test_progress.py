"""What a terminal shows of a sweep, with a clock of its own."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from support.manual_clock import ManualClock

from dorylax.experiments.progress import SweepProgress
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.experiments.sweep_file import read
from dorylax.trainer import EpochRecord

_RUNS = read("grid: {model.name: [gcn, gat]}\nseeds: 2\n", "s.yaml", "s").runs
_SUMMARY = {"metric": "accuracy", "test_accuracy": 0.815, "epochs": 4}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _progress(
    clock: ManualClock, stream: io.StringIO, *, todo: int = 4, jobs: int = 1, seconds: Mapping[str, float] | None = None
) -> SweepProgress:
    """All four runs, of which the last `todo` are to be done."""
    return SweepProgress(_RUNS, _RUNS[4 - todo :], jobs, seconds or {}, stream, clock=clock.now)


def _record(epoch: int, **fields: float) -> EpochRecord:
    given: dict[str, float | None] = {"val_accuracy": 0.75, "dollars": None, **fields}
    return EpochRecord(
        epoch=epoch,
        loss=0.5,
        train_accuracy=None,
        test_accuracy=None,
        seconds=1.0,
        **given,  # type: ignore[arg-type]
    )


def _lines(progress: SweepProgress) -> list[tuple[str, str]]:
    """Of the terminal: description and state, the whole first."""
    shown = [
        [task.fields[name] for name in ("state", "left") if task.fields.get(name)] for task in progress._progress.tasks
    ]
    return [(task.description, "  ".join(one)) for task, one in zip(progress._progress.tasks, shown, strict=True)]


def _run(progress: SweepProgress, clock: ManualClock, run: Run, seconds: float, status: str = "done") -> None:
    progress.begins(run)
    progress.started(run, 4, 0)
    clock.time += seconds
    if status == "done":
        progress.ends(RunOutcome(run, "done", _SUMMARY))
    else:
        progress.ends(RunOutcome(run, "failed", error="ValueError: [red]bad[/red]"))


def test_a_line_for_the_whole_and_one_for_each_run_under_way(clock: ManualClock) -> None:
    stream = _Terminal()
    with _progress(clock, stream, todo=3, jobs=2) as progress:
        assert _lines(progress) == [("sweep", "1/4 runs")]
        progress.begins(_RUNS[1])
        progress.begins(_RUNS[2])
        assert _lines(progress)[1:] == [("  gcn, seed 1", "compiling …"), ("  gat, seed 0", "compiling …")]
        progress.started(_RUNS[2], 4, 0)
        progress.epoch(_RUNS[2], _record(0, dollars=1.5))
        assert _lines(progress)[2] == ("  gat, seed 0", "epoch 1/4  loss 0.5000  accuracy 0.7500  $1.50")
        progress.ends(RunOutcome(_RUNS[2], "failed", error="ValueError: [red]bad[/red]"))
        assert _lines(progress) == [("sweep", "2/4 runs  1 failed"), ("  gcn, seed 1", "compiling …")]
    assert "[3/4] gat, seed 0: failed: ValueError: [red]bad[/red]\n" in stream.getvalue()


def test_a_pipe_whose_reader_has_ended_ends_nothing(clock: ManualClock) -> None:
    class Broken(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    progress = _progress(clock, Broken())
    with progress:
        for run in _RUNS:
            _run(progress, clock, run, 10)


def test_the_time_left_follows_from_the_runs_so_far(clock: ManualClock) -> None:
    with _progress(clock, _Terminal()) as progress:
        assert progress.seconds_left() is None
        _run(progress, clock, _RUNS[0], 60.0)
        assert progress.seconds_left() == 180.0
        assert _lines(progress) == [("sweep", "1/4 runs  about 3 min 00 s left")]
        progress.begins(_RUNS[1])
        progress.started(_RUNS[1], 4, 0)
        progress.epoch(_RUNS[1], _record(2))
        assert progress.seconds_left() == 60.0 * 2.25
        progress.ends(RunOutcome(_RUNS[1], "failed", error="x"))
        assert progress.seconds_left() == 120.0
        _run(progress, clock, _RUNS[2], 60.0)
        _run(progress, clock, _RUNS[3], 60.0)
        assert progress.seconds_left() == 0.0
        assert _lines(progress) == [("sweep", "4/4 runs  1 failed")]


def test_a_failed_run_says_nothing_of_how_long_others_take(clock: ManualClock) -> None:
    progress = _progress(clock, io.StringIO())
    _run(progress, clock, _RUNS[0], 1.0, "failed")
    assert progress.seconds_left() is None


def test_what_is_known_of_earlier_runs_counts(clock: ManualClock) -> None:
    known = {run.key: 10.0 * place for place, run in enumerate(_RUNS)}
    assert _progress(clock, io.StringIO(), seconds=known).seconds_left() == 60.0
    assert _progress(clock, io.StringIO(), todo=2, seconds={_RUNS[2].key: 7.0}).seconds_left() == 14.0


def test_side_by_side_takes_less_time_but_the_last_run_is_alone(clock: ManualClock) -> None:
    seconds = {run.key: 10.0 for run in _RUNS}
    progress = _progress(clock, io.StringIO(), jobs=2, seconds=seconds)
    assert progress.seconds_left() == 20.0
    for run, left in zip(_RUNS, (15.0, 10.0, 10.0, 0.0), strict=True):
        _run(progress, clock, run, 10.0)
        assert progress.seconds_left() == left


def test_all_is_done_already(clock: ManualClock) -> None:
    with _progress(clock, _Terminal(), todo=0) as progress:
        assert _lines(progress) == [("sweep", "4/4 runs")]


def test_without_a_terminal_there_is_a_line_for_each_run(clock: ManualClock) -> None:
    stream = io.StringIO()
    with _progress(clock, stream, todo=3) as progress:
        _run(progress, clock, _RUNS[1], 1.0)
        _run(progress, clock, _RUNS[2], 1.0, "failed")
        progress.begins(_RUNS[3])
        progress.started(_RUNS[3], 4, 0)
        progress.epoch(_RUNS[3], _record(0))
        progress.ends(RunOutcome(_RUNS[3], "open"))
    assert stream.getvalue() == (
        "[2/4] gcn, seed 1: test accuracy 81.5 %, 4 epochs\n[3/4] gat, seed 0: failed: ValueError: [red]bad[/red]\n"
    )
