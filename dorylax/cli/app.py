"""The `dorylax` command: its commands, and what every error looks like.

Exit codes: 0 done; 1 the run or the machine failed; 2 the user asked for something that does not exist or cannot be;
130 Ctrl-C; 143 SIGTERM. What a user can cause is one line on standard error, what the user's own code raises is its line
and a sentence; a traceback is a bug of ours, or was asked for.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from dorylax.cli.aws import aws
from dorylax.cli.commands import Commands
from dorylax.cli.datasets import datasets
from dorylax.cli.describe import describe
from dorylax.cli.failures import INTERRUPTED, CommandError, explain
from dorylax.cli.info import info
from dorylax.cli.partition import partition
from dorylax.cli.predict import predict
from dorylax.cli.report import report
from dorylax.cli.train import train
from dorylax.version import __version__

traceback_option = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    help="Show where in the code an error comes from; anywhere on the line.",
)
"""For the help of programs that `run` runs, which takes it out of the command line."""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@traceback_option
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Train graph neural networks on whole graphs."""


for _command in (train, predict, describe, partition, report, datasets, info, aws):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: without the program's name; by default those of the process.

    Returns:
        The exit code.
    """
    return run(cli, "dorylax", arguments)


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Runs any click command with this project's errors and exit codes; see `main`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    frames = "--traceback" in words
    arguments = [word for word in words if word != "--traceback"]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = command.main(arguments, prog_name=program, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except CommandError as failure:
        click.echo(str(failure), err=True)
        return failure.code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        if frames:
            click.echo("".join(traceback.format_exception(error)), err=True)
        click.echo(f"error: {explained.line}", err=True)
        return explained.code
    return code if isinstance(code, int) else 0


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line; where in our code it was raised tells a user nothing."""
    click.echo(f"warning: {' '.join(str(message).split())}", err=True)
