"""Runs side by side: what becomes of the others when a process dies, and what is left when the sweep is stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.leftovers import children

from dorylax.experiments.executors import local as jobs
from dorylax.experiments.executors.local import Processes
from dorylax.experiments.runner import USUAL, error_file, inspect
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.experiments.sweep_file import read
from dorylax.trainer import EpochRecord

_FOREVER = 1_000_000
_SECONDS = 60.0


@pytest.fixture
def others() -> Iterator[set[int]]:
    """Processes that this one had already; at the end it must have no more."""
    before = children()
    yield before
    assert children() <= before


class _Watcher:
    """Calls back at the first epoch of a run that never ends."""

    def __init__(self, at_epoch: Callable[[Run], None]) -> None:
        self.begun: list[Run] = []
        self.finished_epochs: dict[str, int] = {}
        self._at_epoch = at_epoch
        self._seen: set[str] = set()

    def begins(self, run: Run) -> None:
        self.begun.append(run)

    def started(self, run: Run, total_epochs: int, first_epoch: int) -> None:
        assert (total_epochs, first_epoch) == (run.config.train.epochs, 0)

    def epoch(self, run: Run, record: EpochRecord) -> None:
        if run.config.train.epochs == _FOREVER and run.key not in self._seen:
            self._seen.add(run.key)
            self._at_epoch(run)

    def again(self, run: Run, why: str) -> None:
        raise AssertionError("only what nodes have lost runs again")

    def finished(self, run: Run, summary: Mapping[str, Any]) -> None:
        self.finished_epochs[run.key] = summary["epochs"]

    def ends(self, outcome: RunOutcome) -> None: ...


def _runs(*epochs: int) -> tuple[Run, ...]:
    text = f"base: {{data.size: tiny, model.name: mlp}}\ngrid: {{train.epochs: {list(epochs)}}}\n"
    return read(text, "s.yaml", "s").runs


def _wait_for_end(processes: set[int]) -> None:
    end = time.monotonic() + _SECONDS
    while any(_state(process) not in ("Z", "") for process in processes) and time.monotonic() < end:
        time.sleep(0.01)


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_process_that_dies_takes_its_run_along_and_nothing_else(tmp_path: Path, others: set[int]) -> None:
    """One dies idle, which harms no run; the next dies within a run, which has failed."""

    def kill(_: Run | None = None) -> None:
        (worker,) = children() - others
        os.kill(worker, signal.SIGKILL)
        _wait_for_end({worker})

    runs = _runs(1, _FOREVER, 2)
    watcher = _Watcher(kill)
    outcomes = []
    for outcome in Processes(1).execute(runs, tmp_path, watcher, USUAL):
        outcomes.append(outcome)
        if len(outcomes) == 1:
            kill()
    assert [outcome.run for outcome in outcomes] == list(runs) == watcher.begun
    assert [outcome.status for outcome in outcomes] == ["done", "failed", "done"]
    message = (
        "the process that ran it was killed by SIGKILL, as the system does where memory is short: try fewer --jobs"
    )
    assert outcomes[1].error == error_file(tmp_path, runs[1]).read_text() == message
    assert inspect(tmp_path, runs[1]).error == message


def test_a_failure_that_cannot_be_recorded_ends_the_sweep_in_one_error(
    tmp_path: Path, others: set[int], capfd: pytest.CaptureFixture[str]
) -> None:
    """As in one process; the process that ran it says nothing itself."""
    for name in ("runs", "errors"):  # where folders should be
        (tmp_path / name).touch()
    with pytest.raises(FileExistsError) as caught:
        list(Processes(1).execute(_runs(1, 2), tmp_path, _Watcher(lambda _: None), USUAL))
    assert caught.value.filename == str(tmp_path / "errors")
    assert capfd.readouterr().err == ""


def test_processes_that_die_while_they_start(tmp_path: Path, others: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert children() == others
    monkeypatch.setattr(sys, "executable", "/bin/false")
    runs = _runs(1, 2, 3)
    outcomes = list(Processes(2).execute(runs, tmp_path, _Watcher(lambda _: None), USUAL))
    assert sorted(outcome.run.key for outcome in outcomes) == sorted(run.key for run in runs)
    assert {outcome.error for outcome in outcomes} == {"the process that ran it ended with exit code 1"}


def test_processes_find_no_module_in_the_working_directory(
    tmp_path: Path, others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "multiprocessing.py").write_text("import pathlib\n\npathlib.Path(__file__).with_name('ran').touch()\n")
    monkeypatch.chdir(theirs)
    (outcome,) = Processes(1).execute(_runs(1), tmp_path / "runs", _Watcher(lambda _: None), USUAL)
    assert outcome.status == "done"
    assert not (theirs / "ran").exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_process_that_does_not_stop_is_made_to(
    tmp_path: Path, others: set[int], monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """After some time, or when Ctrl-C comes again."""
    monkeypatch.setattr(jobs, "_GRACE_SECONDS", _SECONDS if again else 0.3)
    timers = []

    def interrupt(_: Run) -> None:
        (worker,) = children() - others
        os.kill(worker, signal.SIGSTOP)  # it hears nothing any more
        if again:
            timers.append(threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Processes(1).execute(_runs(_FOREVER), tmp_path, _Watcher(interrupt), USUAL))
    for timer in timers:
        timer.join()
    assert children() == others
