"""From a data set to what servers hold of it: each its shard and the rows beside it, written for other processes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dorylax.aligned import rows_of
from dorylax.graph.cutting import Cutting
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.npz import MASKS as MASK_NAMES
from dorylax.graph.partition import Layout
from dorylax.graph.shard import Shard
from dorylax.graph.shard_files import write_shard
from dorylax.graph.shard_names import SUMMARY, shard_name
from dorylax.graph.sharded_data import ShardedData, ShardEntry, ShardsSummary, mask_counts
from dorylax.pipeline.interval_data import MASKS, ROWS, row_name


def own_rows(data: Dataset, cutting: Cutting, shard: Shard, order: np.ndarray, *, ids: bool) -> dict[str, np.ndarray]:
    """What lies beside a shard, by name.

    Args:
        data: the data set.
        cutting: by which the shard was cut.
        shard: the server's part of the graph.
        order: of the layout.
        ids: whether ids of edges are among them, and where they are not the edges' places, these too.
    """
    graph, rows = data.graph, order[shard.first : shard.last]
    found = {
        row_name("rows", "features"): rows_of(data.features, rows),
        row_name("labels", "labels"): data.labels[rows],
        row_name("ids", "vertex ids"): (rows if graph.vertex_ids is None else graph.vertex_ids[rows]).astype(np.int32),
        MASKS: np.stack([getattr(data, name)[rows] for name in MASK_NAMES]),
        ROWS: rows,
    }
    found |= {row_name("rows", name): rows_of(array, rows) for name, array in data.vertex_inputs.items()}
    if not (ids or data.edge_inputs):
        return found
    places = cutting.edge_places(shard.server)
    found |= {row_name("rows", name): rows_of(array, places) for name, array in data.edge_inputs.items()}
    if ids:
        own = graph.edge_ids
        found[row_name("ids", "edge ids")] = places if own is None else rows_of(own, places)
        found[row_name("places", "edge places")] = places
    return found


def write_shards(
    folder: Path,
    data: Dataset,
    layout: Layout,
    *,
    ids: bool,
    description: Mapping[str, Any] = MappingProxyType({}),
    graph_digest: str = "",
    settings: Mapping[str, Any] | None = None,
    digests: bool = True,
) -> ShardedData:
    """Cuts a data set and writes each server's file, one after the other, and the summary last.

    Args:
        folder: where to; it is there.
        data: the data set.
        layout: of its graph.
        ids: whether edge ids are written: 4 bytes an edge, 8 where they are not the places of edges.
        description: of the data set (`describe_data`), by which runs are compared.
        graph_digest: of its graph (`graph.partition.graph_digest`), which tells its partitions.
        settings: the section of the configuration by which it was loaded; None where a program has made it.
        digests: whether the summary has the SHA-256 of files; not needed where nobody else will read them.

    Raises:
        OSError: a file cannot be written.
    """
    cutting = Cutting(data.graph, layout)
    summary = ShardsSummary(
        name=data.name,
        shape=dataclasses.replace(DataShape.of(data), edge_ids=data.graph.edge_ids_fit),
        features=str(data.features.dtype),
        masks=mask_counts(data),
        description=dict(description),
        settings=None if settings is None else dict(settings),
        graph_digest=graph_digest,
        intervals=len(layout.interval_bounds[0]) - 1,
        edge_ids=ids,
    )
    entries = []
    for server in range(layout.num_servers):
        shard = cutting.shard(server)
        path = folder / shard_name(server)
        rows = own_rows(data, cutting, shard, layout.order, ids=ids)
        write_shard(path, shard, rows, identity=summary.identity)
        ghosts = len(shard.ghosts["in"]), len(shard.ghosts["out"])
        sha256 = _sha256(path) if digests else ""
        entries.append(ShardEntry(path.name, path.stat().st_size, sha256, shard.bounds, shard.edge_bounds, ghosts))
        del shard, rows  # before the next is made
    summary = dataclasses.replace(summary, shards=tuple(entries))
    (folder / SUMMARY).write_text(summary.to_json(), encoding="utf-8")
    return ShardedData(str(folder), summary)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
