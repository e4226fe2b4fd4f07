"""`dorylax reorder`: writes an archive in another memory order, within a budget of memory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dorylax.cli.budget import Memory, memory_option
from dorylax.machine import peak_bytes
from dorylax.observers.progress import bar, data_size, duration
from dorylax.settings.errors import ConfigError
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, OUTPUT
from dorylax.terminal.options import no_verify_option
from dorylax.terminal.output import print_json


@click.command()
@click.argument("data", metavar="IN.npz", type=INPUT)
@click.option("--out", metavar="OUT.npz", required=True, type=OUTPUT, help="The archive that is written.")
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
    """Write an archive in another memory order.

    Vertices and edges keep their numbers: whatever is computed from the new archive comes out in the user's order. The
    graph is never held in memory; files of about its size lie beside OUT.npz meanwhile.
    """
    if not data.is_file():
        raise ConfigError(f"there is no file {data}: give the path of an npz archive")
    if out.suffix != ".npz":
        raise ConfigError(f"--out must end in .npz, got {str(out)!r}")

    from dorylax.graph.stream.reordering import reorder_archive

    begin = time.perf_counter()
    again = told_if_interrupted(f"{out} is what it was; the same command begins anew")
    with again, bar(f"reorder {data.name}") as progress:

        def told(what: str, done: int, total: int) -> None:
            progress(done, total, what)

        found = reorder_archive(data, out, order=order, memory=memory.bytes, verify=not no_verify, told=told)
    seconds, size, peak = time.perf_counter() - begin, out.stat().st_size, peak_bytes()
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
