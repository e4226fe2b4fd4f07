"""`dorylax report`: the report of one or more sweeps, from the files that their runs left."""

from __future__ import annotations

from pathlib import Path

import click

from dorylax.experiments.folder import read_study
from dorylax.settings.errors import ConfigError


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Where to write [default: DIR, if there is one]."
)
def report(*, folders: tuple[Path, ...], out: Path | None) -> None:
    """Write a report on one or more sweeps.

    Each DIR is the folder of a sweep, or of `dorylax train`. Writes report.html, report.md and figures/; runs
    nothing.
    """
    if out is None:
        if len(folders) > 1:
            raise ConfigError("--out is needed with several folders: it says where their common report goes")
        out = folders[0]
    from dorylax.experiments.report import write_report

    studies = [read_study(folder) for folder in folders]
    outcomes = [outcome for study in studies for outcome in study.outcomes]
    if not any(outcome.status == "done" for outcome in outcomes):
        reason = next((f" ({one.run.label}: {one.error})" for one in outcomes if one.status == "failed"), "")
        raise ConfigError(f"there is nothing to report: no run is done yet{reason}")
    _check_out(out)
    click.echo(f"report: {write_report(studies, out)}")


def _check_out(out: Path) -> None:
    """A report replaces the folder of figures beside it, which must not be somebody else's."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file, not a folder")
    ours = any((out / name).is_file() for name in ("sweep.json", "report.html"))
    if (out / "figures").exists() and not ours:
        raise ConfigError(f"--out {out} has figures that belong to no report and would be lost: choose another folder")
