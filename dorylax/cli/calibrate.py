"""`dorylax calibrate`: measures this machine, and describes it as a cluster for `pipeline.cluster`."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dorylax.graph.cache import cache_directory
from dorylax.memory.process_limits import check_process
from dorylax.observers.progress import bar
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import write_file
from dorylax.store.folder_lock import locked
from dorylax.terminal.files import OUTPUT
from dorylax.terminal.output import print_error, print_json, print_rows

if TYPE_CHECKING:
    from dorylax.cost.measured import Measured

_SUFFIXES = (".yaml", ".yml")  # with which `pipeline.cluster` distinguishes a file from a name


@click.command()
@click.option("--out", metavar="FILE.yaml", type=OUTPUT, help="Write the description.")
@click.option("--replace", is_flag=True, help="With --out: overwrite an existing file.")
@click.option("--name", metavar="NAME", help="Name of the cluster [default: the file's name].")
@click.option(
    "--price",
    metavar="DOLLARS",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Price of a machine per hour [default: 0].",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def calibrate(*, out: Path | None, replace: bool, name: str | None, price: float, as_json: bool) -> None:
    """Measure this machine.

    Measures gathers, matrix products, copies of memory, the overhead of a pipeline's task, and requests between two
    processes: medians of three rounds, which take two minutes. Run no other programs meanwhile. With --out the result
    is a cluster of such machines, for `pipeline.cluster=FILE.yaml`.
    """
    check_process()
    _check_out(out, replace=replace)

    measured = _measured(out, replace=replace)

    from dorylax.calibration.description import cluster_of, to_text
    from dorylax.calibration.machine import doubts

    cluster = cluster_of(measured, name or ("this-machine" if out is None else out.stem), price)
    if out is not None:
        write_file(out, to_text(cluster))
    found = doubts(measured)
    if as_json:
        print_json({"schema": 1, "out": None if out is None else str(out), "cluster": cluster, "doubts": found})
    else:
        _show(measured)
        if out is not None:
            click.echo(f"written: {out}, for pipeline.cluster={out}")
        else:
            click.echo("nothing was written: give --out FILE.yaml to keep it for pipeline.cluster")
    for doubt in found:
        print_error(f"warning: {doubt}")


def _check_out(out: Path | None, *, replace: bool) -> None:
    """Check that the file may be written, before anything is measured.

    Raises:
        ConfigError: The file may not be written.
    """
    if out is None:
        if replace:
            raise ConfigError("--replace is about the file of --out: give both")
        return
    if out.suffix not in _SUFFIXES:
        raise ConfigError(
            f"--out must end in {' or '.join(_SUFFIXES)}, by which pipeline.cluster knows it, got {str(out)!r}"
        )
    if os.path.lexists(out) and not replace:
        raise ConfigError(f"--out {out} exists: give another name, or --replace to measure anew")


def _measured(out: Path | None, *, replace: bool) -> Measured:
    """Measure, once no other calibration is running on this machine."""
    from dorylax.calibration.machine import measure
    from dorylax.calibration.steps import Sizes

    def waiting(holder: str) -> None:
        print_error(f"{holder} is measuring this machine: waiting until it has ended")

    # The lock names the machine, since other machines, which measure separately, may share the cache.
    with locked(cache_directory() / "calibrate" / platform.node(), waiting=waiting), bar("measuring") as progress:
        _check_out(out, replace=replace)  # another calibration may have written it meanwhile
        return measure(progress, Sizes())


def _show(measured: Measured) -> None:
    """Print a table."""
    from dorylax.cost.measured import KINDS

    rows = [
        (
            kind,
            ", ".join(_at(name, value) for name, value in one.at),
            _amount(one.median, of.unit),
            f"{_amount(one.low, of.unit)} … {_amount(one.high, of.unit)}",
            str(one.repeats),
        )
        for kind, of in KINDS.items()
        for one in measured.of(kind)
    ]
    title = f"{measured.processor}, cores: {measured.cores}"
    print_rows(("what", "at", "median", "quartiles", "repeats"), rows, title, left=("what", "at"))


def _at(name: str, value: int | str) -> str:
    """Format a parameter of a measurement: `threads 2`, `rows 128 MiB`."""
    kept = name.removesuffix("_bytes")
    return f"{name} {value}" if kept == name else f"{kept} {int(value) / 2**20:g} MiB"


def _amount(value: float, unit: str) -> str:
    """Format a value: `3.2 GB/s`, `41 Gflops/s`, `84 µs`."""
    return (
        f"{1e6 * value:.1f} µs" if unit == "seconds" else f"{value / 1e9:.2f} G{'B/s' if unit == 'bytes/s' else unit}"
    )
