"""Commands about data sets: `dorylax datasets`, `generate`, `reorder` and `convert`."""

from __future__ import annotations

import dataclasses
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from dorylax.cli.options import Memory, memory_option
from dorylax.machine import peak_bytes
from dorylax.observers.progress import bar, data_size, duration
from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import scalar
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.files import INPUT, OUTPUT_FOLDER
from dorylax.terminal.options import json_option, no_verify_option, option
from dorylax.terminal.output import print_json, print_rows, printable

out_option = option("--out FOLDER", "Write the data set here.", required=True, type=OUTPUT_FOLDER)


@click.command()
@json_option
def datasets(*, as_json: bool) -> None:
    """List the data sets."""
    from dorylax.graph.datasets import cache_directory, describe

    entries = describe()
    if as_json:
        print_json({"schema": 1, "datasets": [dataclasses.asdict(entry) for entry in entries]})
        return
    columns = ("data.name", "data.size", "vertices", "edges", "features", "classes", "comes from", "what it is")
    rows = []
    for entry in entries:
        numbers = ["–"] * 4 if entry.size is None else [f"{value:,}" for value in dataclasses.astuple(entry.size)]
        rows.append([printable(entry.name), entry.size_name or "", *numbers, entry.origin, entry.summary])
    print_rows(columns, rows, left=(*columns[:2], *columns[-2:]))
    click.echo(f"downloads are kept in {cache_directory()}; a path of a folder is taken as it is")


@click.command()
@click.argument("name", type=click.Choice(["communities"]))
@option("--size", "As data.size of `dorylax train`: `dorylax datasets` lists them.", type=str)
@option("--set OPTION=VALUE", "Set an option of the generator; repeatable.", name="settings", multiple=True)
@out_option
@memory_option
def generate(*, name: str, size: str | None, settings: tuple[str, ...], out: Path, memory: Memory) -> None:
    """Write a generated data set to a folder, in little memory.

    NAME is communities. Its options are seed, split_seed, num_vertices, num_edges, average_degree, num_features,
    num_classes, num_communities, num_labelled, order, homophily, signal, label_noise and degree_exponent.
    """
    options: dict[str, Any] = {} if size is None else {"size": size}
    for setting in settings:  # by YAML's rules for scalars; the generator checks them
        key, equals, text = setting.partition("=")
        key = key.strip().removeprefix("data.")
        if not equals:
            raise ConfigError(f"--set takes option=value, as in homophily=0.7, got {setting!r}")
        if key in options:
            raise ConfigError(f"{key} is given twice on the command line")
        options[key] = scalar(text.strip())

    from dorylax.graph.array_folder import size_on_disk
    from dorylax.graph.datasets import generate as write

    begin = time.perf_counter()
    with _unchanged_if_interrupted(out), bar("generating") as progress:
        write(name, out, memory=memory.bytes, progress=progress, **options)
    click.echo(f"{name}: {out}, {data_size(size_on_disk(out))}, {duration(time.perf_counter() - begin)}")


@click.command()
@click.argument("data", metavar="DATA", type=INPUT)
@out_option
@option(
    "--order",
    "community: neighbours lie close, so that training gathers them faster; user: as the data came.",
    type=click.Choice(("community", "user")),
    default="community",
)
@memory_option
@no_verify_option
@json_option
def reorder(*, data: Path, out: Path, order: str, memory: Memory, no_verify: bool, as_json: bool) -> None:
    """Write a data set in another memory order.

    DATA is a folder. Vertices and edges keep their numbers: results from the new data come out in the user's order. The
    command does not load the graph; it reads each array once for each part of the result that fits in --memory.
    """
    if not data.exists():
        raise ConfigError(f"there is no folder {data}: give the path of one that dorylax wrote")

    from dorylax.graph.array_folder import size_on_disk
    from dorylax.graph.reordering import reorder_on_disk

    begin = time.perf_counter()
    with _unchanged_if_interrupted(out), bar(f"reorder {data.name}") as progress:

        def on_step(what: str, done: int, total: int) -> None:
            progress(done, total, what)

        found = reorder_on_disk(data, out, order=order, memory=memory.bytes, verify=not no_verify, on_step=on_step)
    seconds, size, peak = time.perf_counter() - begin, size_on_disk(out), peak_bytes()
    if as_json:
        content = {"schema": 1, "data": str(data), "out": str(out), "order": order}
        content |= {"num_vertices": found.num_vertices, "num_edges": found.num_edges, "bytes": size}
        content |= {"seconds": seconds, "order_seconds": found.order_seconds}
        print_json(content | {"memory": memory.bytes, "peak_memory": peak})
        return
    click.echo(
        f"{out}: {found.num_vertices:,} vertices and {found.num_edges:,} edges in the order of "
        f"{'communities' if order == 'community' else 'the user'}, {data_size(size)}, in {duration(seconds)}, "
        f"peak memory {data_size(peak)}"
    )


@click.command()
@click.argument("old", metavar="OLD", type=INPUT)
@click.argument("new", metavar="NEW", type=OUTPUT_FOLDER)
@no_verify_option
def convert(*, old: Path, new: Path, no_verify: bool) -> None:
    """Rewrite a data set or a partition of an earlier version as a folder.

    OLD is an .npz archive or the folder of a partition. Shards are not converted: make the partition again.
    """
    if not old.exists():
        raise ConfigError(f"there is no file or folder {old}: give a data set or a partition of an earlier version")

    from dorylax.graph import array_folder
    from dorylax.graph.manifest import OLD_PARTITION, SUMMARY
    from dorylax.graph.partition import Partition

    with _unchanged_if_interrupted(new):
        if (old / OLD_PARTITION[0]).is_file():
            if (old / SUMMARY).is_file():
                raise ConfigError(f"{old} has shards, which are not converted: make it again (dorylax partition)")
            Partition.load(old).save(new)
        else:
            array_folder.convert(old, new, verify=not no_verify)
    click.echo(f"{new}: {data_size(array_folder.size_on_disk(new))}")


def _unchanged_if_interrupted(out: Path) -> AbstractContextManager[None]:
    return told_if_interrupted(f"{out} is what it was; the same command begins anew")
