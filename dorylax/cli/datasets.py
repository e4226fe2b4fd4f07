"""`dorylax datasets`: values of `--data`, and the source of each data set."""

from __future__ import annotations

import dataclasses

import click
from rich.table import Table

from dorylax.terminal.output import print_json, print_table, printable


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def datasets(as_json: bool) -> None:
    """List the data sets."""
    from dorylax.graph.datasets import cache_directory, describe

    entries = describe()
    if as_json:
        content = {"schema": 1, "datasets": [dataclasses.asdict(entry) for entry in entries]}
        print_json(content)
        return
    table = Table()
    table.add_column("data.name", no_wrap=True)
    table.add_column("data.size", no_wrap=True)
    for name in ("vertices", "edges", "features", "classes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("comes from", no_wrap=True)
    table.add_column("what it is")
    for entry in entries:
        numbers = ["–"] * 4 if entry.size is None else [f"{value:,}" for value in dataclasses.astuple(entry.size)]
        table.add_row(printable(entry.name), entry.size_name or "", *numbers, entry.origin, entry.summary)
    print_table(table)
    click.echo(f"downloads are kept in {cache_directory()}; a path of a folder is taken as it is")
