"""`dorylax reorder`: writes a data set in another memory order, within a budget of memory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dorylax.cli.budget import Memory, memory_option
from dorylax.machine import peak_bytes
from dorylax.observers.progress import bar, data_size, duration
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER
from dorylax.terminal.options import no_verify_option
from dorylax.terminal.output import print_json


@click.command()
@click.argument("data", metavar="DATA", type=INPUT)
@click.option("--out", metavar="FOLDER", required=True, type=OUTPUT_FOLDER, help="Write the data set here.")
@click.option(
    "--order",
    type=click.Choice(("community", "user")),
    default="community",
    show_default=True,
    help="community: neighbours lie close, so that training gathers them faster; user: as the data came.",
)
@memory_option
@no_verify_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def reorder(*, data: Path, out: Path, order: str, memory: Memory, no_verify: bool, as_json: bool) -> None:
    """Write a data set in another memory order.

    DATA is a folder. Vertices and edges keep their numbers: results from the new data come out in the user's order. The
    command does not load the graph; it reads each array once for each part of the result that fits in --memory.
    """
    if not data.exists():
        raise ConfigError(f"there is no folder {data}: give the path of one that dorylax wrote")

    from dorylax.graph.array_folder import size_on_disk
    from dorylax.graph.stream.reordering import reorder_on_disk

    begin = time.perf_counter()
    again = told_if_interrupted(f"{out} is what it was; the same command begins anew")
    with again, bar(f"reorder {data.name}") as progress:

        def told(what: str, done: int, total: int) -> None:
            progress(done, total, what)

        found = reorder_on_disk(data, out, order=order, memory=memory.bytes, verify=not no_verify, told=told)
    seconds, size, peak = time.perf_counter() - begin, size_on_disk(out), peak_bytes()
    content = {
        "schema": 1,
        "data": str(data),
        "out": str(out),
        "order": order,
        "num_vertices": found.num_vertices,
        "num_edges": found.num_edges,
        "bytes": size,
        "seconds": seconds,
        "order_seconds": found.order_seconds,
        "memory": memory.bytes,
        "peak_memory": peak,
    }
    if as_json:
        print_json(content)
        return
    click.echo(
        f"{out}: {found.num_vertices:,} vertices and {found.num_edges:,} edges in the order of "
        f"{'communities' if order == 'community' else 'the user'}, {data_size(size)}, in {duration(seconds)}, "
        f"peak memory {data_size(peak)}"
    )
