"""The command `dorylax sweep`, also as a script: `python experiments/run.py --sweep [FILE]`.

`sweep_file` reads a sweep, `execution` runs it, and `table` prints its results.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

if __name__ == "__main__" and not __package__:
    # As a script Python puts this folder first on the path, where `sweep` and `table` would be importable as top-level
    # modules. In a checkout its root belongs there instead; the native library is found in an installed package if any.
    _root = Path(__file__).resolve().parent.parent
    sys.path[:1] = [str(_root)] if (_root / "pyproject.toml").is_file() else []

import click

from dorylax.experiments.confounding import confounders
from dorylax.experiments.execution import carry_out, known_outcomes, known_seconds, typical_seconds
from dorylax.experiments.executors.base import Executor
from dorylax.experiments.executors.in_process import InProcess
from dorylax.experiments.executors.processes import Processes
from dorylax.experiments.executors.ray_tasks import ray_tasks
from dorylax.experiments.folder import check_folder, locked, write_sweep
from dorylax.experiments.progress import SweepProgress
from dorylax.experiments.runner import RunOptions, check_data, error_file
from dorylax.experiments.sweep import CONFIGS, Condition, Run, Study, Sweep, select
from dorylax.experiments.sweep_file import load
from dorylax.experiments.table import print_summary
from dorylax.machine import cores
from dorylax.memory.process_limits import check_process
from dorylax.near_matches import did_you_mean
from dorylax.observers.progress import duration
from dorylax.observers.tensorboard import load_library
from dorylax.ray_cluster.config import RayConfig
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import FAILED, INTERRUPTED, TERMINATED, CommandError
from dorylax.terminal.files import OUTPUT_FOLDER
from dorylax.terminal.options import no_verify_option
from dorylax.terminal.run import run as run_command
from dorylax.terminal.run import traceback_option

_DEFAULT = "flagship"


@click.command()
@click.argument("name", metavar="[FILE]", default=_DEFAULT)
@click.option("--out", metavar="DIR", type=OUTPUT_FOLDER, help="Folder of the sweep [default: runs/NAME].")
@click.option(
    "--only",
    metavar="KEY=VALUE",
    multiple=True,
    help="Only runs in which a key that varies, or train.seed, has this value; several values of one key are "
    "alternatives, different keys must all match.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Concurrent runs, each in its own process [default: one per core if all runs are in virtual time, else 1; with "
    "--hosts ray as many as there is room for].",
)
@click.option(
    "--hosts",
    type=click.Choice(["processes", "ray"]),
    default="processes",
    help="Where runs run: in processes of this machine, or over the nodes of a Ray cluster [default: processes].",
)
@click.option("--address", metavar="HOST:PORT", help="The Ray cluster [default: as ray.address: null].")
@click.option(
    "--cpus-per-run",
    metavar="C",
    type=click.IntRange(min=1),
    help="With --hosts ray, CPUs, and threads, of each run [default: this machine's cores].",
)
@click.option("--report/--no-report", "with_report", default=True, help="Write report.html at the end [default: yes].")
@click.option(
    "--tensorboard", is_flag=True, help="Also write DIR/runs/KEY/tensorboard of runs that train, for TensorBoard."
)
@click.option("--list", "show_list", is_flag=True, help="List the sweeps that come with dorylax.")
@no_verify_option
@click.option("--dry-run", is_flag=True, help="Show what would run, and for how long, judging by finished runs.")
def sweep(
    *,
    name: str | None,
    out: Path | None,
    only: tuple[str, ...],
    jobs: int | None,
    hosts: str,
    address: str | None,
    cpus_per_run: int | None,
    with_report: bool,
    tensorboard: bool,
    show_list: bool,
    no_verify: bool,
    dry_run: bool,
) -> int:
    """Run a sweep of configurations, compare them, and write a report.

    FILE is a YAML file (docs/experiments.md) or one of --list, by default the flagship. Each run has a directory under
    DIR/runs. Finished runs are not repeated, so an interrupted sweep resumes when you start it again. DIR/results.csv
    has one row per run, DIR/report.html shows them.
    """
    check_process()
    if show_list:
        _list()
        return 0
    if name is None:
        raise click.UsageError("say what to run: --sweep, --sweep FILE, or --list")
    if hosts != "ray" and (address, cpus_per_run) != (None, None):
        raise ConfigError(f"{'--address' if address else '--cpus-per-run'} needs --hosts ray")
    place = _Place(jobs, RayConfig(address=address) if hosts == "ray" else None, cpus_per_run)
    whole = load(_find(name))
    folder = out or Path("runs") / whole.name
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file, not a folder")
    conditions = [_condition(text) for text in only]
    chosen = select(whole, conditions)
    if no_verify:
        chosen = chosen.unverified()
    check_folder(folder, chosen)
    for line in confounders(chosen):
        click.echo(f"warning: {line}", err=True)
    if dry_run:
        return _dry_run(chosen, folder, place)
    if tensorboard:
        if chosen.simulated:
            raise ConfigError("--tensorboard shows what is trained, and this sweep simulates: leave it out")
        simulated = sum(run.simulation is not None for run in chosen.runs)
        if simulated:
            click.echo(
                f"--tensorboard: {simulated} of {len(chosen.runs)} runs are simulated, and leave nothing to show",
                err=True,
            )
        load_library()  # so that its absence is reported once, and not by every run
    check_data(chosen)
    with locked(folder):
        options = RunOptions(tensorboard=tensorboard)
        _run(chosen, conditions, folder, place, options, whole=whole, with_report=with_report)
    return 0


def _condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--only must be KEY=VALUE, got {text!r}")
    return key, value


def _find(name: str) -> Path:
    """The sweep file that a name or path refers to."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    names = _names()
    if name not in names:
        raise ConfigError(f"no such sweep {name!r}: {did_you_mean(name, names)} Or give a file, FILE.yaml")
    return CONFIGS / f"{name}.yaml"


def _names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def _list() -> None:
    for name in _names():
        sweep = load(CONFIGS / f"{name}.yaml")
        click.echo(f"{name}: {len(sweep.runs)} runs. {sweep.question or sweep.description}")


@final
class _Place(NamedTuple):
    """Where runs run: with a section `ray` over a cluster, of `cpus` each; and how many at a time, None: as is usual."""

    jobs: int | None
    ray: RayConfig | None
    cpus: int | None

    def here(self, runs: Sequence[Run]) -> int:
        """How many at a time on this machine: runs on the real clock would disturb each other's times."""
        usual = cores() if all(run.virtual for run in runs) else 1
        return max(1, min(self.jobs or usual, len(runs)))

    @contextlib.contextmanager
    def executor(self, runs: Sequence[Run]) -> Iterator[tuple[Executor, int]]:
        """What runs them, and how many at a time it expects to."""
        if not runs:
            yield InProcess(), 1
        elif self.ray is None:
            at_a_time = self.here(runs)
            for pipeline in {run.config.pipeline for run in runs if run.config.single.memory == "check"}:
                check_process(pipeline, at_a_time=at_a_time)
            yield (InProcess() if at_a_time == 1 else Processes(at_a_time)), at_a_time
        else:
            with ray_tasks(self.ray, runs, jobs=self.jobs, cpus=self.cpus) as tasks:
                yield tasks, tasks.at_a_time


def _dry_run(sweep: Sweep, folder: Path, place: _Place) -> int:
    check_data(sweep)
    outcomes = list(known_outcomes(sweep, folder).values())
    known = known_seconds(outcomes)
    for outcome in outcomes:
        seconds = typical_seconds(outcome.run, known)
        took = "" if seconds is None else f"  ({duration(seconds)})"
        click.echo(f"{outcome.run.key}  {outcome.status:6}  {outcome.run.label}{took}")
    todo = [outcome.run for outcome in outcomes if outcome.status != "done"]
    line = f"{len(todo)} of {len(outcomes)} runs to do, in {folder}"
    estimates = [typical_seconds(run, known) for run in todo]
    if todo and place.ray is None and all(seconds is not None for seconds in estimates):
        at_a_time = place.here(todo)
        work = sum(seconds or 0.0 for seconds in estimates)
        line += f"; about {duration(work / at_a_time)} with --jobs {at_a_time}, judging by finished runs"
    click.echo(line)
    return 0


def _run(
    sweep: Sweep,
    conditions: Sequence[Condition],
    folder: Path,
    place: _Place,
    options: RunOptions,
    *,
    whole: Sweep,
    with_report: bool,
) -> None:
    known = known_outcomes(sweep, folder)
    todo = [outcome.run for outcome in known.values() if outcome.status != "done"]
    took = known_seconds(known.values())
    seconds = {run.key: estimate for run in todo if (estimate := typical_seconds(run, took)) is not None}
    with (
        place.executor(todo) as (executor, at_a_time),
        SweepProgress(sweep.runs, todo, at_a_time, seconds) as progress,
    ):
        write_sweep(folder, whole, conditions)
        found, stopped = carry_out(known, folder, progress, executor=executor, options=options)
    outcomes = list(found.values())
    study, any_done = Study(sweep, outcomes, folder), any(outcome.status == "done" for outcome in outcomes)
    print_summary(study, f"sweep {sweep.name}")
    click.echo(f"results: {folder / 'results.csv'}")
    if with_report and any_done:
        from dorylax.experiments.report import write_report  # loads Matplotlib

        click.echo(f"report: {write_report([study], folder)}")
    if any_done:
        from dorylax.experiments.analysis import analyse  # loads pandas
        from dorylax.experiments.verdicts import answers

        for line in answers([(part, analyse(part)) for part in study.parts]):
            click.echo(line)
    if stopped is not None:
        code = INTERRUPTED if stopped == "interrupted" else TERMINATED
        raise CommandError(f"{stopped}; finished runs are kept: the same command continues", code)
    if failed := [outcome.run for outcome in outcomes if outcome.status == "failed"]:
        first = error_file(folder, failed[0])
        raise CommandError(f"{len(failed)} of {len(outcomes)} runs failed; the first one's traceback: {first}", FAILED)


_OF_SCRIPT = click.Option(
    ["--sweep", "name"],
    metavar="[FILE]",
    is_flag=False,
    flag_value=_DEFAULT,
    help=f"Run a sweep: a YAML file, or one of --list [without FILE: {_DEFAULT}].",
)
command = traceback_option(
    click.Command(
        "run",
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=sweep.callback,
        params=[_OF_SCRIPT, *sweep.params[1:]],
        help=sweep.help,
    )
)
"""`dorylax sweep` as the script has it: the file is the value of `--sweep`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script's command line; returns the exit code. See `dorylax.terminal.run.run`."""
    return run_command(command, "experiments/run.py", arguments)


if __name__ == "__main__":
    sys.exit(main())
