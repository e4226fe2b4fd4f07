"""The command as a whole: help, version, wrong words, start-up."""

from __future__ import annotations

import functools
import operator
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dorylax import __version__
from dorylax.cli.app import run
from dorylax.cli.failures import CommandError, explain
from dorylax.config import ConfigError
from dorylax.runs.checkpoint import CheckpointError, CheckpointMismatchError
from dorylax.runs.directory import RunDirectoryAccessError, RunDirectoryError

_ROOT = Path(__file__).parent.parent.parent


def test_version(dorylax) -> None:
    assert dorylax("--version") == (0, f"dorylax {__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_names_all_commands(dorylax, words: tuple[str, ...]) -> None:
    code, out, err = dorylax(*words)
    assert (code, err) == (0, "")
    for command in ("train", "predict", "report", "datasets", "info", "aws"):
        assert f"\n  {command} " in out


@pytest.mark.parametrize("command", ["train", "predict", "report", "datasets", "info", "aws"])
def test_each_command_has_help(dorylax, command: str) -> None:
    code, out, _ = dorylax(command, "--help")
    assert code == 0
    assert out.startswith(f"Usage: dorylax {command}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "no such command 'trian': did you mean train?"),
        (["zz"], "no such command 'zz': choose from aws, datasets, describe, info, partition, predict, report, train"),
        (["--verison"], "no such option --verison: did you mean --version?"),
        (["train", "--epoch", "3"], "no such option --epoch: did you mean --epochs?"),
        (["train", "extra"], "got unexpected extra argument (extra)"),
        (["train", "--out"], "option '--out' requires an argument"),
        (["predict"], "missing option '--run'"),
        (["predict", "--run", "x", "--seed", "a"], "invalid value for '--seed': 'a' is not a valid integer"),
    ],
)
def test_wrong_words_are_one_line(dorylax, words: list[str], message: str) -> None:
    assert dorylax(*words) == (2, "", f"error: {message}\n")


def test_errors_and_help_do_not_import_jax() -> None:
    script = (
        "import sys; from dorylax.cli import main; main(['--help']); main(['train', '--epochs', '0']);"
        "main(['train', '--set', 'train.epoch=1']); main(['train', '--help']); main(['trian'])\n"
        "print([name for name in ('jax', 'flax', 'optax', 'orbax') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_as_a_module_from_the_checkout() -> None:
    command = [sys.executable, "-m", "dorylax", "train", "--epochs", "0"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: train.epochs must be ≥ 1, got 0\n")


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
    assert explain(ValueError("not ours")) is None


def test_what_the_users_own_code_raises_is_its_line_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_raising(KeyError("first\nsecond")), "fail", []) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(r"error: .*test_app\.py:\d+ \(_raising\.<locals>\.fail\): raise error\nKeyError: .*\n", err)
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [KeyError("a"), ConfigError("wrong")])
def test_frames_are_shown_where_they_are_asked_for(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    code = run(_raising(error), "fail", [])
    short = capsys.readouterr().err
    assert run(_raising(error), "fail", ["--traceback"]) == code
    long = capsys.readouterr().err
    assert long.startswith("Traceback (most recent call last):\n")
    assert long.endswith(short)


def test_help_names_the_flag_for_frames(dorylax) -> None:
    assert "--traceback" in dorylax("--help").out


def test_memory_that_xla_does_not_get_is_one_line() -> None:
    import jax

    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore")
    explained = explain(error)
    assert explained is not None
    assert explained.code == 1
    assert explained.line.startswith("this does not fit in memory (Out of memory allocating 8 bytes): lower model.hidd")
    assert explain(jax.errors.JaxRuntimeError("INTERNAL: a bug")) is None
