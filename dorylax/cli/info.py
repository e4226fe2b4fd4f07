"""`dorylax info`: information for bug reports: versions, kernel, machine, folders; with --data, the memory of a run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dorylax.cli.options import configured
from dorylax.config import RunConfig
from dorylax.config.files import Overrides
from dorylax.environment import environment
from dorylax.machine import cores, physical_bytes
from dorylax.memory.process_limits import check_process
from dorylax.settings.errors import ConfigError
from dorylax.terminal.options import json_option, option
from dorylax.terminal.output import print_json, printable


@click.command()
@option("--data NAME_OR_FOLDER", "Show how much memory training on this data takes instead.")
@option("--model NAME", "As for `dorylax train`; with --data.")
@configured(data="data.name", model="model.name")
@json_option
def info(overrides: Overrides, *, as_json: bool) -> None:
    """Show versions, kernel, machine and folders; or the memory of a run.

    With --data, or a file that names the data, it shows the memory that `dorylax train` with these options needs, phase by
    phase, and whether that fits. It does not load, generate or train.
    """
    check_process()
    options = click.get_current_context().params
    if options["data"] is not None or options["file"] is not None:
        from dorylax.cli.memory import show_memory

        show_memory(RunConfig.resolve(overrides.values, code=overrides.code), as_json=as_json)
        return
    if overrides.values:
        raise ConfigError("--model, --set and --no-verify describe a run: give its --data too")

    import jax

    from dorylax.graph.datasets import cache_directory

    found = environment()
    facts = {
        "schema": 1,
        "dorylax": found["dorylax"],
        "kernel": found["kernel"]["name"],
        "instruction_set": found["kernel"]["instruction_set"],
        "kernel_reason": found["kernel"]["reason"],
        "python": found["python"],
        "platform": found["platform"],
        "packages": found["packages"],
        "devices": [str(device) for device in jax.devices()],
        "cores": cores(),
        "memory_bytes": physical_bytes(),
        "package_directory": str(Path(__file__).resolve().parent.parent),
        "cache_directory": str(cache_directory()),
        "DORYLAX_DATA": os.environ.get("DORYLAX_DATA"),
    }
    if as_json:
        print_json(facts)
        return
    rows = {name.replace("_", " "): value for name, value in facts.items() if name not in ("schema", "packages")}
    rows["devices"] = ", ".join(facts["devices"])
    rows["memory"] = None if (size := rows.pop("memory bytes")) is None else f"{size / 2**30:.1f} GiB"
    rows["DORYLAX_DATA"] = rows.pop("DORYLAX DATA")
    rows |= facts["packages"]
    width = max(map(len, rows))
    for name, value in rows.items():
        click.echo(printable(f"{name:{width}}  {'–' if value is None else value}"))
