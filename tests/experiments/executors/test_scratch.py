"""Temporary folders of runs, and those that processes which were killed have left."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dorylax.experiments.executors.scratch import scratch_folder

_KILLED = """\
import os, signal
from dorylax.experiments.executors.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "file").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_one_that_is_in_use_stays_and_all_are_gone_in_the_end(place: Path) -> None:
    with scratch_folder() as first, scratch_folder() as second:
        (first / "file").touch()
        assert sorted(place.iterdir()) == sorted([first, second])
    assert list(place.iterdir()) == []


def test_that_of_a_process_that_was_killed_is_removed_by_the_next(place: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED], check=False)
    (left,) = place.iterdir()
    with scratch_folder() as folder:
        assert list(place.iterdir()) == [folder]
        assert folder != left


def test_a_foreign_folder_stays(place: Path) -> None:
    (place / "dorylax-run-results").mkdir()
    (place / "dorylax-run-results" / "table.csv").touch()
    (place / "dorylax-run-link").symlink_to(place / "dorylax-run-results")
    (place / "dorylax-run-empty").mkdir()  # as a process leaves that is killed before it writes anything
    with scratch_folder():
        pass
    assert {path.name for path in place.iterdir()} == {"dorylax-run-results", "dorylax-run-link"}
    assert (place / "dorylax-run-results" / "table.csv").is_file()


def test_one_that_was_just_taken_for_left_is_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, answers = fcntl.flock, [BlockingIOError, FileNotFoundError]

    def refused(descriptor: int, how: int) -> None:
        if answers:
            raise answers.pop()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", refused)
    with scratch_folder() as folder:
        assert folder.is_dir()
        assert len(list(place.iterdir())) == 3


def test_without_locks_nobody_removes_another_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(place.iterdir()) == sorted([first, second])
