"""The `dorylax` command: lists its commands. `dorylax.terminal.run` defines exit codes and final messages."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dorylax.cli.commands import LazyCommands
from dorylax.terminal.run import run, traceback_option
from dorylax.version import __version__

COMMANDS = {
    "train": ("dorylax.cli.train:train", "Train a model on a graph."),
    "predict": (
        "dorylax.cli.predict:predict",
        "Predict with a trained model: the parameters of its best epoch, without dropout.",
    ),
    "export": (
        "dorylax.cli.export:export",
        "Export a trained model: one file that needs only JAX and NumPy.",
    ),
    "describe": ("dorylax.cli.describe:describe", "Show the tasks that a model is split into."),
    "import": ("dorylax.cli.import_graph:import_graph", "Import edges from files of any size."),
    "partition": ("dorylax.cli.partition:partition", "Spread the vertices of a graph over servers."),
    "reorder": ("dorylax.cli.reorder:reorder", "Write a data set in another memory order."),
    "convert": ("dorylax.cli.convert:convert", "Rewrite a data set or a partition of an earlier version as a folder."),
    "simulate": (
        "dorylax.cli.simulate:simulate",
        "Estimate the time and cost of a run on a cluster.",
    ),
    "sweep": ("dorylax.experiments.run:sweep", "Run a sweep of configurations, compare them, and write a report."),
    "report": ("dorylax.cli.report:report", "Write a report on one or more sweeps."),
    "datasets": ("dorylax.cli.datasets:datasets", "List the data sets."),
    "generate": ("dorylax.cli.generate:generate", "Write a generated data set to a folder, in little memory."),
    "info": ("dorylax.cli.info:info", "Show versions, kernel, machine and folders; or the memory of a run."),
    "calibrate": ("dorylax.cli.calibrate:calibrate", "Measure this machine."),
    "aws": ("dorylax.cli.aws:aws", "Run tensor tasks on AWS Lambda: deploy, inspect, tear down."),
}
"""Where each command is defined, and the first sentence of its help: `dorylax --help` imports none of them."""


@click.group(cls=LazyCommands, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@traceback_option
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Train graph neural networks on whole graphs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `dorylax.terminal.run.run`."""
    return run(cli, "dorylax", arguments)
