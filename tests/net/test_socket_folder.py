"""Where socket files go, whatever the temporary folder is like."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import until

from dorylax.errors import RunError
from dorylax.net import sockets
from dorylax.net.keys import RunKeys
from dorylax.net.server import DataServer
from dorylax.net.sockets import make_socket_folder

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def short(nothing_left: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder that is tried where the temporary one is of no use."""
    folder = nothing_left / "s"
    folder.mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(sockets, "_SHORT", (str(folder),))
    yield folder
    folder.rmdir()


@pytest.fixture
def long(nothing_left: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder with a path too long for a socket."""
    folder = nothing_left / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    folder.rmdir()


def test_it_is_in_the_temporary_folder_and_for_this_user_alone(nothing_left: Path) -> None:
    folder = make_socket_folder()
    assert folder.path.parent == nothing_left
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.remove()
    folder.remove()


def test_where_that_is_too_long_sockets_are_elsewhere(short: Path, long: Path) -> None:
    with DataServer(RunKeys.make()) as server:
        address = server.open("graph 0").address
        (made,) = short.iterdir()
        assert address == f"ipc://{made}/0"
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert not list(short.iterdir())
    assert not list(long.iterdir())


def test_the_users_runtime_folder_comes_first(
    short: Path, long: Path, nothing_left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = nothing_left / "r"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = make_socket_folder()
    assert folder.path.parent == runtime
    folder.remove()
    runtime.rmdir()
    folder = make_socket_folder()
    assert folder.path.parent == short  # the system has removed the other one
    folder.remove()


def test_a_runtime_folder_without_a_name_is_none(short: Path, long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.chdir("/tmp")
    folder = make_socket_folder()
    folder.remove()
    assert folder.path.parent == short


def test_no_place_at_all_is_one_line(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(sockets, "_SHORT", (str(long / "none"),))
    with pytest.raises(RunError) as caught:
        DataServer(RunKeys.make())
    text = str(caught.value)
    assert text.startswith(
        f"socket files of workers have no place ({long}: its path is too long for a socket, at most 1"
    )
    assert f"{long / 'none'}: No such file or directory" in text
    assert text.endswith("set TMPDIR to a folder with a short path that can be written, or tensor.transport=tcp")
    assert "\n" not in text


def test_a_system_without_a_temporary_folder(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setenv("TMPDIR", os.devnull)
    folder = make_socket_folder()
    assert folder.path.parent == short
    folder.remove()


_KILLED = """
import os, signal
from dorylax.net.keys import RunKeys
from dorylax.net.server import DataServer
print(DataServer(RunKeys.make()).open("graph 0").address.removeprefix("ipc://"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_goes_with_a_process_that_is_killed(nothing_left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(nothing_left))
    command = [sys.executable, "-c", _KILLED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == -signal.SIGKILL
    folder = Path(done.stdout.strip()).parent
    assert folder.parent == nothing_left
    until(lambda: not folder.exists())


def test_without_a_shell_it_is_as_good(nothing_left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "no shell")

    monkeypatch.setattr(subprocess, "run", none)
    folder = make_socket_folder()
    assert folder.path.is_dir()
    folder.remove()
