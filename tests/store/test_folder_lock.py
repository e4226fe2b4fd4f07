"""The lock of a folder, between processes and within one."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dorylax.errors import RunError
from dorylax.store import folder_lock
from dorylax.store.folder_lock import LOCK, locked

_HOLD = """\
import sys, time
from pathlib import Path
from dorylax.store.folder_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    """A process that has the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def test_another_process_is_named_until_it_ends(tmp_path: Path) -> None:
    process = _holder(tmp_path)
    with (
        pytest.raises(RunError, match=f"{tmp_path} is held by process {process.pid}, since 20"),
        locked(tmp_path),
    ):
        pass
    _end(process)
    with locked(tmp_path):
        assert (tmp_path / LOCK).is_file()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_locks_nobody_out(tmp_path: Path) -> None:
    process = _holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert (tmp_path / LOCK).is_file()
    with (tmp_path / LOCK).open("ab") as left:
        left.write(b"}" * 100)  # on a host with a longer name
    with locked(tmp_path), pytest.raises(RunError, match="is held by this process"), locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_this_process_is_named_and_what_was_made_goes(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with locked(folder), pytest.raises(RunError, match="is held by this process, since"), locked(folder):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"process": "x", "host": 1, "since": 2}', b"\xff"])
def test_a_holder_that_says_nothing_is_another_process(tmp_path: Path, content: bytes) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).write_bytes(content)
        with pytest.raises(RunError, match="is held by another process"), locked(tmp_path):
            pass


def test_a_holder_on_another_machine(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).write_text('{"process": 7, "host": "node3", "since": "noon"}')
        with pytest.raises(RunError, match="is held by process 7 on node3, since noon"), locked(tmp_path):
            pass


def test_one_that_comes_while_the_holder_lets_go_gets_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the file that the holder then removes; a third one must not get the lock beside it."""
    first = locked(tmp_path)
    first.__enter__()
    locking = fcntl.flock

    def late(file: object, operation: int) -> None:
        if not waited:
            waited.append(1)
            first.__exit__(None, None, None)
        locking(file, operation)  # type: ignore[arg-type]

    waited: list[int] = []
    monkeypatch.setattr(fcntl, "flock", late)
    with locked(tmp_path), pytest.raises(RunError), locked(tmp_path):
        pass


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder_lock, "_this_process", full)
    with pytest.raises(OSError, match="No space left") as caught, locked(tmp_path / "a"):
        pass
    assert caught.value.filename == str(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


class _Unclosable(io.BufferedRandom):
    """A file of a network's file system that says only at the end that there was no room."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_lock_that_cannot_be_closed_hides_no_error_and_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdopen", lambda descriptor, _: _Unclosable(io.FileIO(descriptor, "r+")))
    with pytest.raises(OSError, match="Input/output error: 'mine'"), locked(tmp_path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "mine")
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.warns(UserWarning, match=f"{tmp_path} cannot be locked .*no other process writes there"),
        locked(tmp_path),
    ):
        assert (tmp_path / LOCK).is_file()


def test_a_lock_that_fails_for_another_reason_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: object, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output error"), locked(tmp_path):
        pass


def test_folders_that_could_not_all_be_made_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def full(path: Path, mode: int = 0o777) -> None:
        if Path(path).name == "c":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(OSError, match="No space left on device"), locked(tmp_path / "a" / "b" / "c"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "killed"])
def test_a_holder_may_be_waited_for(tmp_path: Path, killed: bool) -> None:
    process = _holder(tmp_path)
    told: list[str] = []

    def ends(holder: str) -> None:
        told.append(holder)
        if killed:
            process.kill()
        _end(process)

    with locked(tmp_path, waiting=ends), pytest.raises(RunError, match="this process"), locked(tmp_path):
        pass
    assert told[0].startswith(f"process {process.pid}, since")
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    process = _holder(tmp_path)
    let_go: list[bool] = []

    def end() -> None:
        let_go.append(True)
        _end(process)

    later = threading.Timer(0.3, end)
    with locked(tmp_path, waiting=lambda _: later.start()):
        assert let_go
    later.join()


def test_a_folder_that_its_holder_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    opening = os.open

    def late(*arguments: object, **options: object) -> int:
        monkeypatch.setattr(os, "open", opening)
        folder.rmdir()
        return opening(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", late)
    with locked(folder):
        assert (folder / LOCK).is_file()
