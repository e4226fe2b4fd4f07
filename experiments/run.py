"""Runs sweeps: `python experiments/run.py --sweep [FILE]`, or `python -m dorylax.experiments.run`.

The command line of `sweep` (what to run), `runner` (running it) and `table` (what comes out).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # As a script Python puts this folder first on the path, where `sweep` and `table` would be importable as top-level
    # modules. In a checkout its root belongs there instead; the native library is found in an installed package if any.
    _root = Path(__file__).resolve().parent.parent
    sys.path[:1] = [str(_root)] if (_root / "pyproject.toml").is_file() else []

import click

from dorylax.cli.app import run as run_command
from dorylax.cli.failures import FAILED, INTERRUPTED, TERMINATED, CommandError
from dorylax.config.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from dorylax.experiments.sweep import Run, Sweep

_CONFIGS = Path(__file__).resolve().parent / "configs"
_DEFAULT = "models"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--sweep",
    "name",
    metavar="[FILE]",
    is_flag=False,
    flag_value=_DEFAULT,
    help=f"Run a sweep: a YAML file, or one of --list [without FILE: {_DEFAULT}].",
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the sweep [default: runs/NAME].")
@click.option("--list", "show_list", is_flag=True, help="List the sweeps that come with dorylax.")
@click.option("--dry-run", is_flag=True, help="Say what would run.")
def command(name: str | None, out: Path | None, show_list: bool, dry_run: bool) -> int:
    """Run a sweep of configurations and print mean ± standard deviation.

    Each run has a directory under DIR/runs; runs that are done are not run again, so an interrupted sweep goes on when
    it is started again. DIR/results.csv has one row per run.
    """
    if show_list:
        _list()
        return 0
    if name is None:
        raise click.UsageError("say what to run: --sweep, --sweep FILE, or --list")
    from dorylax.experiments.sweep import load

    sweep = load(_find(name))
    folder = out or Path("runs") / sweep.name
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file, not a folder")
    return _dry_run(sweep, folder) if dry_run else _run(sweep, folder)


def _find(name: str) -> Path:
    """The sweep file that a name or a path means."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    names = _names()
    if name not in names:
        raise ConfigError(f"no such sweep {name!r}: {did_you_mean(name, names)} Or give a file, FILE.yaml")
    return _CONFIGS / f"{name}.yaml"


def _names() -> list[str]:
    return sorted(path.stem for path in _CONFIGS.glob("*.yaml"))


def _list() -> None:
    from dorylax.experiments.sweep import load

    for name in _names():
        sweep = load(_CONFIGS / f"{name}.yaml")
        click.echo(f"{name}: {len(sweep.runs)} runs. {sweep.description}")


def _dry_run(sweep: Sweep, folder: Path) -> int:
    from dorylax.experiments.runner import check_data, inspect

    check_data(sweep)
    outcomes = [inspect(folder, run) for run in sweep.runs]
    for outcome in outcomes:
        click.echo(f"{outcome.run.key}  {outcome.status:6}  {outcome.run.label}")
    todo = sum(outcome.status != "done" for outcome in outcomes)
    click.echo(f"{todo} of {len(outcomes)} runs to do, in {folder}")
    return 0


def _run(sweep: Sweep, folder: Path) -> int:
    from dorylax.cli.outcome import print_table
    from dorylax.experiments.runner import check_data, error_file, execute, inspect
    from dorylax.experiments.table import summary_table, write_tables
    from dorylax.progress import ProgressBar, describe_summary

    check_data(sweep)
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = {run.key: inspect(folder, run) for run in sweep.runs}
    bar: ProgressBar | None = None

    def label(run: Run) -> str:
        position = next(index for index, other in enumerate(sweep.runs, start=1) if other.key == run.key)
        return f"[{position}/{len(sweep.runs)}] {run.label}"

    def watch(run: Run) -> ProgressBar:
        nonlocal bar
        bar = ProgressBar(label(run))
        return bar

    stopped = None
    try:
        for outcome in execute(sweep, folder, watch):
            outcomes[outcome.run.key] = outcome
            if bar is not None:
                bar.close()
            if outcome.status == "failed":
                click.echo(f"{label(outcome.run)}: failed: {outcome.error}", err=True)
            elif outcome.status == "done" and not sys.stderr.isatty():
                click.echo(f"{label(outcome.run)}: {describe_summary(outcome.summary)}", err=True)
            elif outcome.status == "open":
                stopped = CommandError("terminated; what is done is kept: the same command goes on", TERMINATED)
            write_tables(list(outcomes.values()), folder)
    except KeyboardInterrupt:
        stopped = CommandError("interrupted; what is done is kept: the same command goes on", INTERRUPTED)
    if bar is not None:
        bar.close()
    write_tables(list(outcomes.values()), folder)
    print_table(summary_table(sweep, list(outcomes.values())))
    click.echo(f"results: {folder / 'results.csv'}")
    if stopped is not None:
        raise stopped
    if failed := [outcome.run for outcome in outcomes.values() if outcome.status == "failed"]:
        first = error_file(folder, failed[0])
        raise CommandError(f"{len(failed)} of {len(outcomes)} runs failed; the first one's traceback: {first}", FAILED)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code. See `dorylax.cli.app.run`."""
    return run_command(command, "experiments/run.py", arguments)


if __name__ == "__main__":
    sys.exit(main())
