"""`dorylax report`: the report of one or more sweeps, from the files of their runs."""

from __future__ import annotations

from pathlib import Path

import click

from dorylax.experiments.folder import check_figures, read_study
from dorylax.settings.errors import ConfigError
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER
from dorylax.terminal.options import option


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

    from dorylax.experiments.report import write_report

    studies = [read_study(folder) for folder in folders]
    outcomes = [outcome for study in studies for outcome in study.outcomes]
    if not any(outcome.status == "done" for outcome in outcomes):
        reason = next((f" ({one.run.label}: {one.error})" for one in outcomes if one.status == "failed"), "")
        raise ConfigError(f"there is nothing to report: no run is done yet{reason}")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file, not a folder")
    check_figures(out)
    click.echo(f"report: {write_report(studies, out)}")
