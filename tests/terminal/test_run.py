"""How a program ends: errors as one line, exit codes, frames where they are asked for."""

from __future__ import annotations

import errno
import functools
import gc
import io
import operator
import re
import signal
import sys
import time

import click
import pytest

from dorylax.config import ConfigError
from dorylax.runs.checkpoint import CheckpointError, CheckpointMismatchError
from dorylax.runs.directory import RunDirectoryAccessError, RunDirectoryError
from dorylax.terminal.failures import CommandError
from dorylax.terminal.run import run


def _raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("wrong"), 2, "error: wrong"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "error: /x/y: Permission denied"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device"),
        (RunDirectoryError("another run's"), 2, "error: another run's"),
        (RunDirectoryAccessError("full"), 1, "error: full"),
        (CheckpointError("full"), 1, "error: full"),
        (CheckpointMismatchError("another run's"), 2, "error: another run's"),
        (
            MemoryError("cannot allocate"),
            1,
            "error: this does not fit in memory (cannot allocate): lower model.hidden_features, model.heads or "
            "model.num_layers, or take a smaller graph",
        ),
        (CommandError("told already", 143), 143, "told already"),
        (KeyboardInterrupt(), 130, "\ninterrupted"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str) -> None:
    assert run(_raising(error), "fail", []) == code
    assert capsys.readouterr().err == f"{line}\n"


def test_a_bug_keeps_its_traceback() -> None:
    """What is raised without a line of the user's own on the way: this file, like any that is not ours, counts as theirs."""
    ours = click.Command("fail", callback=functools.partial(operator.truediv, 1, 0))
    with pytest.raises(ZeroDivisionError):
        run(ours, "fail", [])


def test_what_the_users_own_code_raises_is_its_line_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_raising(KeyError("first\nsecond")), "fail", []) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(r"error: .*test_run\.py:\d+ \(_raising\.<locals>\.fail\): raise error\nKeyError: .*\n", err)
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [KeyError("a"), ConfigError("wrong")])
def test_frames_are_shown_where_they_are_asked_for(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    code = run(_raising(error), "fail", [])
    short = capsys.readouterr().err
    assert run(_raising(error), "fail", ["--traceback"]) == code
    long = capsys.readouterr().err
    assert long.startswith("Traceback (most recent call last):\n")
    assert long.endswith(short)


@pytest.mark.parametrize(("error", "code"), [(ConfigError("wrong"), 2), (CommandError("terminated", 143), 143)])
def test_the_exit_code_needs_no_terminal(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    def write(_: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    closed = io.StringIO()
    monkeypatch.setattr(closed, "write", write)
    monkeypatch.setattr(sys, "stderr", closed)
    assert run(_raising(error), "fail", []) == code


def test_ctrl_c_is_not_lost_in_a_callback_of_the_garbage_collector(capsys: pytest.CaptureFixture[str]) -> None:
    def once(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(once)
        signal.raise_signal(signal.SIGINT)

    def collect() -> None:
        gc.callbacks.append(once)
        gc.collect()
        time.sleep(5)

    gc.collect()  # what other tests have left, such as sockets of ZeroMQ, which print what interrupts their finalisers
    assert run(click.Command("collect", callback=collect), "collect", []) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"
