"""The commands `dorylax sweep` and `report`; a sweep also as a script: `python experiments/run.py --sweep [FILE]`.

`sweep_file` reads a sweep, `execution` runs it, and `table` prints its results.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if __name__ == "__main__" and not __package__:
    # As a script Python puts this folder first on the path, where `sweep` and `table` would be importable as top-level
    # modules. In a checkout its root belongs there instead; the native library is found in an installed package if any.
    _root = Path(__file__).resolve().parent.parent
    sys.path[:1] = [str(_root)] if (_root / "pyproject.toml").is_file() else []

import click

from dorylax.experiments.confounding import confounders
from dorylax.experiments.execution import Executor, carry_out, expected_seconds, known_outcomes
from dorylax.experiments.executors.local import InProcess, Processes
from dorylax.experiments.executors.ray_tasks import ray_tasks
from dorylax.experiments.folder import check_figures, check_folder, locked, read_study, write_sweep
from dorylax.experiments.progress import SweepProgress
from dorylax.experiments.runner import RunOptions, check_data, error_file
from dorylax.experiments.sweep import CONFIGS, Run, Study, Sweep, select
from dorylax.experiments.sweep_file import load
from dorylax.experiments.table import print_summary
from dorylax.machine import cores
from dorylax.memory.process_limits import check_process
from dorylax.near_matches import did_you_mean
from dorylax.observers.progress import duration
from dorylax.observers.tensorboard import load_library
from dorylax.ray_cluster.config import RayConfig
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import FAILED, INTERRUPTED, TERMINATED, stop
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER
from dorylax.terminal.options import COUNT, no_verify_option, option
from dorylax.terminal.run import run as run_command
from dorylax.terminal.run import traceback_option

_DEFAULT = "flagship"


@click.command()
@click.argument("name", metavar="[FILE]", default=_DEFAULT)
@option("--out DIR", "Folder of the sweep [default: runs/NAME].", type=OUTPUT_FOLDER)
@option(
    "--only KEY=VALUE",
    "Only runs in which a key that varies, or train.seed, has this value; several values of one key are alternatives, "
    "different keys must all match.",
    multiple=True,
)
@option(
    "--jobs N",
    "Concurrent runs, each in its own process [default: one per core if all runs are in virtual time, else 1; with --hosts "
    "ray as many as there is room for].",
    type=COUNT,
)
@option(
    "--hosts",
    "Where runs run: in processes of this machine, or over the nodes of a Ray cluster.",
    type=click.Choice(["processes", "ray"]),
    default="processes",
)
@option("--address HOST:PORT", "The Ray cluster [default: as ray.address: null].")
@option(
    "--cpus-per-run C",
    "With --hosts ray, CPUs, and threads, of each run [default: this machine's cores].",
    type=COUNT,
)
@option(
    "--report/--no-report",
    "Write report.html at the end [default: yes].",
    name="with_report",
    default=True,
    show_default=False,
)
@option("--tensorboard", "Also write DIR/runs/KEY/tensorboard of runs that train, for TensorBoard.")
@option("--list", "List the sweeps that come with dorylax.", name="show_list")
@no_verify_option
@option("--dry-run", "List the runs, with times estimated from finished runs.")
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
        for each in _names():
            shipped = load(CONFIGS / f"{each}.yaml")
            click.echo(f"{each}: {len(shipped.runs)} runs. {shipped.question or shipped.description}")
        return 0
    if name is None:
        raise click.UsageError("say what to run: --sweep, --sweep FILE, or --list")
    if hosts != "ray" and (address, cpus_per_run) != (None, None):
        raise ConfigError(f"{'--address' if address else '--cpus-per-run'} needs --hosts ray")
    ray = RayConfig(address=address) if hosts == "ray" else None
    whole = load(_find(name))
    folder = out or Path("runs") / whole.name
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file, not a folder")
    for condition in only:
        if "=" not in condition:
            raise ConfigError(f"--only must be KEY=VALUE, got {condition!r}")
    conditions = [(key, value) for key, _, value in (condition.partition("=") for condition in only)]
    chosen = select(whole, conditions)
    if no_verify:
        chosen = chosen.unverified()
    check_folder(folder, chosen)
    for line in confounders(chosen):
        click.echo(f"warning: {line}", err=True)
    if tensorboard and not dry_run:
        _check_tensorboard(chosen)
    check_data(chosen)
    if dry_run:
        _show_todo(chosen, folder, None if ray is not None else jobs or 0)
        return 0
    with locked(folder):
        known = known_outcomes(chosen, folder)
        todo = [outcome.run for outcome in known.values() if outcome.status != "done"]
        with (
            _executor(todo, jobs, ray, cpus_per_run) as (executor, at_a_time),
            SweepProgress(chosen.runs, todo, at_a_time, expected_seconds(known.values())) as progress,
        ):
            write_sweep(folder, whole, conditions)
            options = RunOptions(tensorboard=tensorboard)
            found, stopped = carry_out(known, folder, progress, executor=executor, options=options)
        study = Study(chosen, list(found.values()), folder)
        _show_results(study, folder, with_report=with_report)
    if stopped is not None:
        code = INTERRUPTED if stopped == "interrupted" else TERMINATED
        stop(f"{stopped}; finished runs are kept: the same command continues", code)
    if failed := [outcome.run for outcome in study.outcomes if outcome.status == "failed"]:
        first = error_file(folder, failed[0])
        stop(f"{len(failed)} of {len(found)} runs failed; the first one's traceback: {first}", FAILED)
    return 0


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=INPUT)
@option("--out DIR", "Where to write [default: DIR, if there is one].", type=OUTPUT_FOLDER)
def report(*, folders: tuple[Path, ...], out: Path | None) -> None:
    """Write a report on one or more sweeps.

    Each DIR is the folder of a sweep, or of `dorylax train`. Writes report.html, report.md and figures/; runs
    nothing.
    """
    if out is None and len(folders) > 1:
        raise ConfigError("--out is needed with several folders: it says where their common report goes")
    out = out or folders[0]

    from dorylax.experiments.report import write_report  # loads Matplotlib

    studies = [read_study(folder) for folder in folders]
    outcomes = [outcome for study in studies for outcome in study.outcomes]
    if not any(outcome.status == "done" for outcome in outcomes):
        reason = next((f" ({one.run.label}: {one.error})" for one in outcomes if one.status == "failed"), "")
        raise ConfigError(f"there is nothing to report: no run is done yet{reason}")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file, not a folder")
    check_figures(out)
    click.echo(f"report: {write_report(studies, out)}")


def _find(name: str) -> Path:
    """The sweep file that a name or path refers to."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    if name not in (names := _names()):
        raise ConfigError(f"no such sweep {name!r}: {did_you_mean(name, names)} Or give a file, FILE.yaml")
    return CONFIGS / f"{name}.yaml"


def _names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def _check_tensorboard(sweep: Sweep) -> None:
    if sweep.simulated:
        raise ConfigError("--tensorboard shows what is trained, and this sweep simulates: leave it out")
    if simulated := sum(run.simulation is not None for run in sweep.runs):
        total = len(sweep.runs)
        click.echo(f"--tensorboard: {simulated} of {total} runs are simulated, and leave nothing to show", err=True)
    load_library()  # so that its absence is reported once, and not by every run


def _at_a_time(runs: Sequence[Run], jobs: int | None) -> int:
    """Number of concurrent runs on this machine: runs on the real clock would disturb each other's times."""
    usual = cores() if all(run.virtual for run in runs) else 1
    return max(1, min(jobs or usual, len(runs)))


@contextlib.contextmanager
def _executor(
    runs: Sequence[Run], jobs: int | None, ray: RayConfig | None, cpus: int | None
) -> Iterator[tuple[Executor, int]]:
    """The executor of some runs, and the number of concurrent runs that it expects."""
    if runs and ray is not None:
        with ray_tasks(ray, runs, jobs=jobs, cpus=cpus) as tasks:
            yield tasks, tasks.at_a_time
        return
    at_a_time = _at_a_time(runs, jobs)
    for pipeline in {run.config.pipeline for run in runs if run.config.single.memory == "check"}:
        check_process(pipeline, at_a_time=at_a_time)
    yield (InProcess() if at_a_time == 1 else Processes(at_a_time)), at_a_time


def _show_todo(sweep: Sweep, folder: Path, jobs: int | None) -> None:
    """Print all runs with the time that finished ones took; `jobs` is 0 for the usual number, None with Ray."""
    outcomes = known_outcomes(sweep, folder).values()
    seconds = expected_seconds(outcomes)
    for one in outcomes:
        took = f"  ({duration(seconds[one.run.key])})" if seconds else ""
        click.echo(f"{one.run.key}  {one.status:6}  {one.run.label}{took}")
    todo = [one.run for one in outcomes if one.status != "done"]
    line = f"{len(todo)} of {len(outcomes)} runs to do, in {folder}"
    if todo and seconds and jobs is not None:
        at_a_time = _at_a_time(todo, jobs)
        work = sum(seconds[run.key] for run in todo)
        line += f"; about {duration(work / at_a_time)} with --jobs {at_a_time}, judging by finished runs"
    click.echo(line)


def _show_results(study: Study, folder: Path, *, with_report: bool) -> None:
    print_summary(study, f"sweep {study.sweep.name}")
    click.echo(f"results: {folder / 'results.csv'}")
    if not any(outcome.status == "done" for outcome in study.outcomes):
        return
    if with_report:
        from dorylax.experiments.report import write_report  # loads Matplotlib

        click.echo(f"report: {write_report([study], folder)}")
    from dorylax.experiments.analysis import analyse  # loads pandas
    from dorylax.experiments.conclusions import answers

    for line in answers([(part, analyse(part)) for part in study.parts]):
        click.echo(line)


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
