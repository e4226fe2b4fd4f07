"""`dorylax datasets`: values of `--data`, and the source of each data set."""

from __future__ import annotations

import dataclasses

import click

from dorylax.terminal.output import print_json, print_rows, printable


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
    columns = ("data.name", "data.size", "vertices", "edges", "features", "classes", "comes from", "what it is")
    rows = []
    for entry in entries:
        numbers = ["–"] * 4 if entry.size is None else [f"{value:,}" for value in dataclasses.astuple(entry.size)]
        rows.append([printable(entry.name), entry.size_name or "", *numbers, entry.origin, entry.summary])
    print_rows(columns, rows, left=(*columns[:2], *columns[-2:]))
    click.echo(f"downloads are kept in {cache_directory()}; a path of a folder is taken as it is")
