"""`dorylax info`: what a bug report needs: versions, kernel, machine, folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from rich.table import Table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Show versions, kernel, machine and folders."""
    facts = collect()
    if as_json:
        click.echo(json.dumps(facts, indent=2, allow_nan=False, ensure_ascii=False))
        return
    from dorylax.cli.outcome import print_table

    packages = facts.pop("packages")
    memory_bytes = facts.pop("memory_bytes")
    rows = {name.replace("_", " "): value for name, value in facts.items() if name not in ("schema", "DORYLAX_DATA")}
    rows["devices"] = ", ".join(facts["devices"])
    rows["memory"] = None if memory_bytes is None else f"{memory_bytes / 2**30:.1f} GiB"
    rows["DORYLAX_DATA"] = facts["DORYLAX_DATA"]
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in (rows | packages).items():
        table.add_row(name, "–" if value is None else str(value))
    print_table(table)


def collect() -> dict[str, Any]:
    """The facts, as plain values; memory in bytes."""
    import jax

    from dorylax.graph.datasets import cache_directory
    from dorylax.run_directory import environment

    found = environment()
    return {
        "schema": 1,
        "dorylax": found["dorylax"],
        "kernel": found["kernel"]["name"],
        "instruction_set": found["kernel"]["instruction_set"],
        "kernel_reason": found["kernel"]["reason"],
        "python": found["python"],
        "platform": found["platform"],
        "packages": found["packages"],
        "devices": [str(device) for device in jax.devices()],
        "cores": usable_cores(),
        "memory_bytes": memory(),
        "package_directory": str(Path(__file__).resolve().parent.parent),
        "cache_directory": str(cache_directory()),
        "DORYLAX_DATA": os.environ.get("DORYLAX_DATA"),
    }


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int | None:
    """Physical memory in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
