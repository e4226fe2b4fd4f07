"""`dorylax partition`: spreads a data set's graph over servers, shows the costs, and saves the partition."""

from __future__ import annotations

import math
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dorylax.cli.options import Memory, configured, data_option, memory_option
from dorylax.config import RunConfig
from dorylax.config.files import Overrides
from dorylax.graph.manifest import RECORDS
from dorylax.graph.partition.partitioners import Method
from dorylax.graph.partition.simple import Balance
from dorylax.memory.process_limits import check_process
from dorylax.observers.progress import data_size
from dorylax.settings.errors import ConfigError
from dorylax.store.base import Storage
from dorylax.store.places import LocalStorage, open_storage
from dorylax.terminal.failures import told_if_interrupted
from dorylax.terminal.options import COUNT, json_option, option
from dorylax.terminal.output import print_json, print_rows

if TYPE_CHECKING:
    from dorylax.config.schema import ModelConfig
    from dorylax.graph.partition import Partition

_NUMBER_BYTES = 4  # float32


def _widths(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise ConfigError(f"--widths takes whole numbers ≥ 1 separated by commas, as in 16,4, got {text!r}")
    return [int(word) for word in words]


@click.command()
@data_option
@configured(data="data.name")
@option("--servers", "How many servers.", type=COUNT, required=True)
@option("--method", "The partitioner.", type=click.Choice(typing.get_args(Method)), default="metis")
@option(
    "--balance",
    "What to balance across servers; edges: in-edges and vertices together.",
    type=click.Choice(typing.get_args(Balance)),
    default="vertices",
)
@option("--intervals", "Intervals per server.", type=COUNT, default=8)
@option("--seed", "Seed of the random choices.", type=click.IntRange(0, 2**31 - 1), default=0)
@option("--widths N,…", "Numbers per row that each layer exchanges [default: the GCN's].", parse=_widths)
@option(
    "--out PLACE", "Save the partition, and each server's shard of the data: in a folder, or below s3://bucket/prefix."
)
@option(
    "--edge-ids/--no-edge-ids",
    "Whether shards hold edge ids, 4 bytes an edge, which models that draw or take values per edge need.",
    default=True,
)
@memory_option
@json_option
def partition(
    overrides: Overrides,
    *,
    servers: int,
    intervals: int,
    widths: list[int] | None,
    out: str | None,
    edge_ids: bool,
    memory: Memory,
    as_json: bool,
    **given: Any,
) -> None:
    """Spread the vertices of a graph over servers.

    Prints the cost of the partition. Bytes are those that a server sends and receives per epoch for the GCN of
    `dorylax train` with these options: one row for each ghost and layer, forward and backward.
    """
    check_process()

    from dorylax.cli.streamed_partition import streaming
    from dorylax.graph.array_folder import check_target
    from dorylax.graph.data_shape import describe_data
    from dorylax.graph.dataset import arrays_of
    from dorylax.graph.mapped import check_unchanged
    from dorylax.graph.partition import lay_out
    from dorylax.graph.partition import partition as make
    from dorylax.graph.partition import report as report_of
    from dorylax.graph.partition.quality import interval_balance
    from dorylax.pipeline.shard_writing import write_shards
    from dorylax.trainer.from_config import data_settings

    config = RunConfig.resolve(overrides.values, code=overrides.code)
    place = None
    if out is not None:
        try:
            place = open_storage(out)
        except ValueError as error:
            raise ConfigError(f"--out {error}") from None
        if isinstance(place, LocalStorage):
            check_target(Path(place.url))
    how = streaming(config.data, memory, servers=servers, method=given["method"], ids=edge_ids and place is not None)
    beside = Path(place.url) if isinstance(place, LocalStorage) else None
    with told_if_interrupted("nothing was saved; the same command begins anew"), how.working(beside):
        dataset = how.data()
        outputs = math.prod(dataset.labels.shape[1:]) if dataset.num_classes is None else dataset.num_classes
        exchanged = widths or _widths_of_gcn(config.model, outputs)
        graph = dataset.graph
        made = make(graph, servers, **given)
        layout = lay_out(graph, made, intervals, how.communities)
        row_bytes = [_NUMBER_BYTES * width for width in exchanged]
        found = report_of(graph, made, forward=row_bytes, backward=row_bytes)
        shard_bytes: list[int] = []

        def fill(folder: Path) -> None:
            shards = write_shards(
                folder,
                dataset,
                layout,
                ids=edge_ids and graph.edge_ids_fit,
                description=describe_data(dataset),
                graph_digest=made.graph_digest,
                settings=data_settings(config.data),
                laid_out=how.laid_out(layout),
            )
            check_unchanged(*arrays_of(dataset))
            shard_bytes.extend(entry.num_bytes for entry in shards.summary.shards)

        if place is not None:
            _save(place, made, fill)
    sizes = [stop - start for bounds in layout.interval_bounds for start, stop in pairwise(bounds)]
    content = {
        "schema": 1,
        "data": config.data.name,
        "num_vertices": len(made.parts),
        "servers": made.num_parts,
        **{name: getattr(made, name) for name in ("method", "balance", "seed", "graph_digest")},
        **found.to_dict(),
        "intervals": layout.num_intervals // layout.num_servers,
        "interval_vertices": [min(sizes), max(sizes)],
        "interval_edge_balance": interval_balance(graph, layout),
        "widths": exchanged,
        "streamed": how.streams,
        "folder": None if place is None else out,
        "shard_bytes": None if place is None else shard_bytes,
    }
    if as_json:
        print_json(content)
    else:
        _show(content)


def _save(place: Storage, made: Partition, fill: Callable[[Path], None]) -> None:
    """Save a partition and the files that `fill` writes with it; the files that make it a partition are written last."""
    if isinstance(place, LocalStorage):
        made.save(place.url, beside=fill)
        return
    with tempfile.TemporaryDirectory(prefix="dorylax-partition-") as parent:
        folder = Path(parent) / "partition"
        made.save(folder, beside=fill)
        records = [folder / name for name in RECORDS]
        files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in records)
        for path in (*files, *records):
            place.put(path.relative_to(folder).as_posix(), path)


def _widths_of_gcn(model: ModelConfig, num_outputs: int) -> list[int]:
    """Return the numbers per row that each layer of a GCN exchanges."""
    if model.name != "gcn" or model.hidden_features is None or model.num_layers is None:
        raise ConfigError(f"bytes are counted for gcn, not for {model.name!r}: give --widths, or omit model.name")
    if model.jk != "none":
        return [model.hidden_features] * model.num_layers
    return [model.hidden_features] * (model.num_layers - 1) + [num_outputs]


def _show(content: Mapping[str, Any]) -> None:
    """Print a row per server, then common results."""
    title = f"{content['data']} on {content['servers']} servers: {content['method']}, even in {content['balance']}"
    columns = ("server", "vertices", "in-edges", "ghosts in", "ghosts out", "received per epoch", "sent per epoch")
    keys = ("vertices", "edges", "ghosts_in", "ghosts_out", "received_bytes", "sent_bytes")
    values = enumerate(zip(*(content[key] for key in keys), strict=True))
    rows = [[str(server), *_cells(numbers)] for server, numbers in values]
    print_rows(columns, rows, title, left=(), total=["all", *_cells([sum(content[key]) for key in keys])])
    least, most = content["interval_vertices"]
    size = f"{least:,}" if least == most else f"{least:,} … {most:,}"
    click.echo(
        f"cut edges: {content['cut_edges']:,} of {content['num_edges']:,} ({100 * content['cut_share']:.1f} %)\n"
        f"largest server / mean: vertices {content['vertex_balance']:.3f}, in-edges {content['edge_balance']:.3f}\n"
        f"intervals: {content['intervals']} per server, of {size} vertices; "
        f"in-edges, largest / mean of its server: {content['interval_edge_balance']:.3f}\n"
        f"rows exchanged per layer, forward and backward: {', '.join(map(str, content['widths']))} float32 numbers"
    )
    if content["folder"] is not None:
        click.echo(f"saved in {content['folder']}, shards of {', '.join(map(data_size, content['shard_bytes']))}")


def _cells(values: Sequence[int]) -> list[str]:
    *counts, received, sent = values
    return [*(f"{value:,}" for value in counts), data_size(received), data_size(sent)]
