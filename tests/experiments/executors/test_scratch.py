"""Temporary folders of runs, and those that processes which were killed have left."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dorylax.experiments.executors.ray_worker import scratch_folder

_KILLED = """\
import os, signal
from dorylax.experiments.executors.ray_worker import scratch_folder
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
    (place / ".run.dorylax-results").mkdir()
    (place / ".run.dorylax-results" / "table.csv").touch()
    (place / ".run.dorylax-01234567").symlink_to(place / ".run.dorylax-results")
    with scratch_folder():
        pass
    assert {path.name for path in place.iterdir()} == {".run.dorylax-results", ".run.dorylax-01234567"}
    assert (place / ".run.dorylax-results" / "table.csv").is_file()


def test_one_that_was_just_taken_for_left_is_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, taken = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not taken:
            taken.extend(place.iterdir())
            taken[0].rmdir()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with scratch_folder() as folder:
        assert folder.is_dir()
    assert list(place.iterdir()) == []


def test_without_locks_nobody_removes_another_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(place.iterdir()) == sorted([first, second])
