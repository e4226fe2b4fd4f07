"""The `dorylax` command: registers its commands. `dorylax.terminal.run` defines exit codes and final messages."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dorylax.cli.aws import aws
from dorylax.cli.calibrate import calibrate
from dorylax.cli.commands import Commands
from dorylax.cli.convert import convert
from dorylax.cli.datasets import datasets
from dorylax.cli.describe import describe
from dorylax.cli.export import export
from dorylax.cli.generate import generate
from dorylax.cli.import_graph import import_graph
from dorylax.cli.info import info
from dorylax.cli.partition import partition
from dorylax.cli.predict import predict
from dorylax.cli.reorder import reorder
from dorylax.cli.report import report
from dorylax.cli.simulate import simulate
from dorylax.cli.train import train
from dorylax.experiments.run import sweep
from dorylax.terminal.run import run, traceback_option
from dorylax.version import __version__


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@traceback_option
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Train graph neural networks on whole graphs."""


for _command in (
    train,
    predict,
    export,
    describe,
    import_graph,
    partition,
    reorder,
    convert,
    simulate,
    sweep,
    report,
    datasets,
    generate,
    info,
    calibrate,
    aws,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `dorylax.terminal.run.run`."""
    return run(cli, "dorylax", arguments)
