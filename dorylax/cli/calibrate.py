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
from dorylax.terminal.options import json_option, option
from dorylax.terminal.output import print_error, print_json, print_rows

if TYPE_CHECKING:
    from dorylax.cost.measured import Measured

_SUFFIXES = (".yaml", ".yml")  # with which `pipeline.cluster` distinguishes a file from a name


@click.command()
@option("--out FILE.yaml", "Write the description.", type=OUTPUT)
@option("--replace", "With --out: overwrite an existing file.")
@option("--name NAME", "Name of the cluster [default: the file's name].")
@option("--price DOLLARS", "Price of a machine per hour [default: 0].", type=click.FloatRange(min=0))
@json_option
def calibrate(*, out: Path | None, replace: bool, name: str | None, price: float | None, as_json: bool) -> None:
    """Measure this machine.

    Measures gathers, matrix products, copies of memory, the overhead of a pipeline's task, and requests between two
    processes: medians of three rounds, which take two minutes. Run no other programs meanwhile. With --out the result
    is a cluster of such machines, for `pipeline.cluster=FILE.yaml`.
    """
    check_process()
    _check_out(out, replace=replace)

    from dorylax.calibration.description import cluster_of, to_text
    from dorylax.calibration.machine import doubts, measure
    from dorylax.calibration.steps import Sizes

    def waiting(holder: str) -> None:
        print_error(f"{holder} is measuring this machine: waiting until it has ended")

    # The lock names the machine, since other machines, which measure separately, may share the cache.
    with locked(cache_directory() / "calibrate" / platform.node(), waiting=waiting), bar("measuring") as progress:
        _check_out(out, replace=replace)  # another calibration may have written it meanwhile
        measured = measure(progress, Sizes())
    cluster = cluster_of(measured, name or ("this-machine" if out is None else out.stem), price or 0.0)
    if out is not None:
        write_file(out, to_text(cluster))
    found = doubts(measured)
    if as_json:
        print_json({"schema": 1, "out": None if out is None else str(out), "cluster": cluster, "doubts": found})
    else:
        _show(measured)
        nothing = "nothing was written: give --out FILE.yaml to keep it for pipeline.cluster"
        click.echo(nothing if out is None else f"written: {out}, for pipeline.cluster={out}")
    for doubt in found:
        print_error(f"warning: {doubt}")


def _check_out(out: Path | None, *, replace: bool) -> None:
    """Raise ConfigError if the file may not be written, before anything is measured."""
    if out is None and replace:
        raise ConfigError("--replace is about the file of --out: give both")
    if out is None:
        return
    if out.suffix not in _SUFFIXES:
        raise ConfigError(
            f"--out must end in {' or '.join(_SUFFIXES)}, by which pipeline.cluster knows it, got {str(out)!r}"
        )
    if os.path.lexists(out) and not replace:
        raise ConfigError(f"--out {out} exists: give another name, or --replace to measure anew")


def _show(measured: Measured) -> None:
    from dorylax.cost.measured import KINDS

    rows = []
    for kind, of in KINDS.items():
        for one in measured.of(kind):
            median, low, high = (_amount(value, of.unit) for value in (one.median, one.low, one.high))
            at = ", ".join(_at(name, value) for name, value in one.at)
            rows.append((kind, at, median, f"{low} … {high}", str(one.repeats)))
    title = f"{measured.processor}, cores: {measured.cores}"
    print_rows(("what", "at", "median", "quartiles", "repeats"), rows, title, left=("what", "at"))


def _at(name: str, value: int | str) -> str:
    """Format a parameter of a measurement: `threads 2`, `rows 128 MiB`."""
    kept = name.removesuffix("_bytes")
    return f"{name} {value}" if kept == name else f"{kept} {int(value) / 2**20:g} MiB"


def _amount(value: float, unit: str) -> str:
    """Format a value: `3.2 GB/s`, `41 Gflops/s`, `84 µs`."""
    if unit == "seconds":
        return f"{1e6 * value:.1f} µs"
    return f"{value / 1e9:.2f} G{unit.replace('bytes', 'B')}"
