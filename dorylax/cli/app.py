"""The `dorylax` command: lists its commands. `dorylax.terminal.run` defines exit codes and final messages."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence

import click

from dorylax.near_matches import did_you_mean
from dorylax.terminal.run import run, traceback_option
from dorylax.version import __version__

COMMANDS = {
    "train": ("dorylax.cli.train:train", "Train a model on a graph."),
    "predict": (
        "dorylax.cli.predict:predict",
        "Predict with a trained model: the parameters of its best epoch, without dropout.",
    ),
    "export": ("dorylax.cli.predict:export", "Export a trained model: one file that needs only JAX and NumPy."),
    "describe": ("dorylax.cli.describe:describe", "Show the tasks that a model is split into."),
    "import": ("dorylax.cli.import_graph:import_graph", "Import edges from files of any size."),
    "partition": ("dorylax.cli.partition:partition", "Spread the vertices of a graph over servers."),
    "reorder": ("dorylax.cli.data_sets:reorder", "Write a data set in another memory order."),
    "convert": (
        "dorylax.cli.data_sets:convert",
        "Rewrite a data set or a partition of an earlier version as a folder.",
    ),
    "simulate": ("dorylax.cli.simulate:simulate", "Estimate the time and cost of a run on a cluster."),
    "sweep": ("dorylax.experiments.run:sweep", "Run a sweep of configurations, compare them, and write a report."),
    "report": ("dorylax.experiments.run:report", "Write a report on one or more sweeps."),
    "datasets": ("dorylax.cli.data_sets:datasets", "List the data sets."),
    "generate": ("dorylax.cli.data_sets:generate", "Write a generated data set to a folder, in little memory."),
    "info": ("dorylax.cli.info:info", "Show versions, kernel, machine and folders; or the memory of a run."),
    "calibrate": ("dorylax.cli.calibrate:calibrate", "Measure this machine."),
    "aws": ("dorylax.cli.aws:aws", "Run tensor tasks on AWS Lambda: deploy, inspect, tear down."),
}
"""Where each command is defined, and the first sentence of its help: `dorylax --help` imports none of them."""


class Commands(click.Group):
    """A group that suggests similar names for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group`; only the error differs."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}: {did_you_mean(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)

    def all_commands(self) -> dict[str, click.Command]:
        """Return all commands by name, in definition order."""
        return dict(self.commands)


class _LazyCommands(Commands):
    """The group of `COMMANDS`, which imports a command when it is first used; the help of the group imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.add_command(pkgutil.resolve_name(COMMANDS[cmd_name][0]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def all_commands(self) -> dict[str, click.Command]:
        for name in COMMANDS:
            self.get_command(click.Context(self), name)
        return {name: self.commands[name] for name in COMMANDS}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        described = {name: click.Command(name, help=sentence) for name, (_, sentence) in COMMANDS.items()}
        click.Group(commands=described).format_commands(ctx, formatter)


@click.group(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@traceback_option
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Train graph neural networks on whole graphs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `dorylax.terminal.run.run`."""
    return run(cli, "dorylax", arguments)
