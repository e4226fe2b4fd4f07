"""How a program ends: errors as one line, exit codes, frames where they are asked for."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import io
import json
import operator
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import jax
import pytest
from rich.table import Table

from dorylax.config import ConfigError
from dorylax.errors import InputError, RunError
from dorylax.signals import Terminated
from dorylax.store.run_directory import RunDirectoryError
from dorylax.terminal.failures import explain, stop, told_if_interrupted
from dorylax.terminal.output import print_error, print_json, print_table
from dorylax.terminal.run import run


def _raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


_NO_THREADS = (
    "no more threads or processes may be started: raise the limit of this user (ulimit -u) or of the control group "
    "(pids.max), or end other processes"
)
_stopping = click.Command("stop", callback=functools.partial(stop, "told already", 143))


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("wrong"), 2, "error: wrong"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "error: /x/y: Permission denied"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device"),
        (RunDirectoryError("another run's"), 2, "error: another run's"),
        (RunDirectoryError("full", refused=True), 1, "error: full"),
        (RunError("full"), 1, "error: full"),
        (InputError("another run's"), 2, "error: another run's"),
        (
            MemoryError("cannot allocate"),
            1,
            "error: this does not fit in memory (cannot allocate): lower model.hidden_features, model.heads or "
            "model.num_layers, or take a smaller graph",
        ),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore"),
            1,
            "error: this does not fit in memory (Out of memory allocating 8 bytes): lower model.hidden_features, "
            "model.heads or model.num_layers, or take a smaller graph",
        ),
        (RuntimeError("can't start new thread"), 1, f"error: {_NO_THREADS}"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), 1, f"error: {_NO_THREADS}"),
        (
            ImportError("libjax_common.so: failed to map segment from shared object"),
            1,
            "error: the address space does not suffice to load libraries (libjax_common.so): raise the limit (ulimit -v)",
        ),
        (KeyboardInterrupt(), 130, "\ninterrupted"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str) -> None:
    assert run(_raising(error), "fail", []) == code
    assert capsys.readouterr().err == f"{line}\n"


def test_an_error_of_the_file_system_may_be_a_text_alone() -> None:
    assert explain(OSError("8192 requested and\n4096 written")) == ("8192 requested and 4096 written", 1)
    assert explain(OSError()) == ("OSError", 1)


def test_bugs_are_not_explained() -> None:
    bugs = ValueError("not ours"), jax.errors.JaxRuntimeError("INTERNAL: a bug"), ImportError("cannot import name 'x'")
    assert [explain(bug) for bug in bugs] == [None] * 3


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


def test_a_command_ends_with_its_own_line_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_stopping, "stop", []) == 143
    assert capsys.readouterr().err == "told already\n"


@pytest.mark.parametrize(("command", "code"), [(_raising(ConfigError("wrong")), 2), (_stopping, 143)])
def test_the_exit_code_needs_no_terminal(monkeypatch: pytest.MonkeyPatch, command: click.Command, code: int) -> None:
    def write(_: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    closed = io.StringIO()
    monkeypatch.setattr(closed, "write", write)
    monkeypatch.setattr(sys, "stderr", closed)
    assert run(command, "fail", []) == code


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


def _print(text: str) -> click.Command:
    def show() -> None:
        click.echo(text)
        print_json({"name": text})
        table = Table()
        table.add_row(text)
        print_table(table)
        print_error(text)

    return click.Command("show", callback=show)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("text", ["– ≥ grün", os.fsdecode(b"r\xe9sultat")], ids=["letters", "not UTF-8"])
def test_any_text_goes_to_any_output(monkeypatch: pytest.MonkeyPatch, encoding: str, text: str) -> None:
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    assert run(_print(text), "show", []) == 0
    out = (
        streams["stdout"].buffer.getvalue().decode("utf-8" if encoding == "ascii" else encoding)
    )  # click writes UTF-8 then
    assert json.loads(out[out.index("{") : out.index("}") + 1]) == {"name": text}


@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_streams_that_are_missing(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    for name in names:
        monkeypatch.setattr(sys, name, None)
    assert run(_print("text"), "show", []) == 0
    assert run(_raising(ConfigError("wrong")), "fail", []) == 2
    for name in names:
        getattr(sys, name).close()


def test_a_closed_output_is_no_file_that_is_opened_later(tmp_path: Path) -> None:
    program = """
import click, os, sys
from dorylax.terminal.run import run
def write():
    with open("file", "w") as file:
        os.write(1, b"printed by a library")
        file.write("content")
sys.exit(run(click.Command("write", callback=write), "write", []))
"""
    command = [sys.executable, "-P", "-c", program]
    subprocess.run(["/bin/sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *command], cwd=tmp_path, check=True)
    assert (tmp_path / "file").read_text() == "content"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_is_full_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(OSError), io.TextIOWrapper(open("/dev/full", "wb"), "utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(click.Command("say", callback=lambda: print("text")), "say", []) == 1
        sys.stdout.close()
    assert capsys.readouterr().err == "error: No space left on device\n"


def test_what_names_hold_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_raising(ConfigError("no file \x1b]0;x\x07\x9b1m")), "fail", []) == 2
    assert capsys.readouterr().err == "error: no file \\x1b]0;x\\x07\\x9b1m\n"


def test_sigterm_is_143(capsys: pytest.CaptureFixture[str]) -> None:
    def end() -> None:
        with told_if_interrupted("the same command begins anew"):
            signal.raise_signal(signal.SIGTERM)

    assert run(click.Command("end", callback=end), "end", []) == 143
    assert run(_raising(Terminated()), "end", []) == 143
    assert capsys.readouterr().err == "interrupted: the same command begins anew\n\ninterrupted\n"
