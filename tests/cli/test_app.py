"""The command as a whole: help, version, wrong words, start-up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from dorylax import __version__
from dorylax.cli.app import COMMANDS, cli

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


def test_errors_and_help_do_not_import_jax() -> None:
    script = (
        "import sys; from dorylax.cli import main; main(['--help']); main(['train', '--epochs', '0']);"
        "main(['train', '--set', 'train.epoch=1']); main(['train', '--help']); main(['trian'])\n"
        "print([name for name in ('jax', 'flax', 'optax', 'orbax') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_imports_no_command() -> None:
    script = (
        "import sys; from dorylax.cli import main; main(['--help'])\n"
        "print([name for name in ('numpy', 'pydantic', 'scipy', 'yaml', 'ray') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_sentence_of_each(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command.name == name
    assert command.get_short_help_str(1000) == COMMANDS[name][1]


def test_as_a_module_from_the_checkout() -> None:
    command = [sys.executable, "-m", "dorylax", "train", "--epochs", "0"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: train.epochs must be ≥ 1, got 0\n")


def test_help_names_the_flag_for_frames(dorylax) -> None:
    assert "--traceback" in dorylax("--help").out


@pytest.mark.parametrize("module", ["dorylax.cli.app", "dorylax.cli.train"])
def test_ctrl_c_while_commands_are_loaded_is_one_line(module: str) -> None:
    script = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == '{module}': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from dorylax.cli import main\n"
        "sys.exit(main(['train', '--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")
