"""From a data set to what servers hold of it: each its shard and the rows beside it, written for other processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dorylax.graph.cutting import Cutting
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.manifest import SUMMARY, shard_name
from dorylax.graph.partition import Layout
from dorylax.graph.sharded_data import ShardedData, ShardEntry, ShardsSummary, mask_counts, write_shard
from dorylax.pipeline.interval_data import ROWS, own_rows
from dorylax.store.base import content_of


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
    laid_out: Dataset | None = None,
) -> ShardedData:
    """Cut a data set and write each server's folder, one after the other, and the summary last.

    Args:
        folder: where to; it is there.
        data: the data set.
        layout: of its graph.
        ids: whether edge ids are written: 4 bytes an edge, 8 where they are not the places of edges.
        description: of the data set (`describe_data`), by which runs are compared.
        graph_digest: of its graph (`graph.partition.graph_digest`), which tells its partitions.
        settings: the section of the configuration by which it was loaded; None where a program has made it.
        digests: Whether the summary lists the SHA-256 of files, for machines that copy them.
        laid_out: the data set in the order of the layout, where it lies on disk: rows of a server are then read one after
            the other.

    Raises:
        OSError: a file cannot be written.
    """
    source, order = (data, layout.order) if laid_out is None else (laid_out, np.arange(data.graph.num_vertices))
    cutting = Cutting(source.graph, dataclasses.replace(layout, order=order))
    summary = ShardsSummary(
        name=data.name,
        shape=dataclasses.replace(
            DataShape.of(data),
            edge_ids=data.graph.edge_ids_fit,
            features_in="elsewhere",  # how arrays lie here is no matter of whoever reads the files
            graph_in="elsewhere",
        ),
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
        rows = own_rows(source, cutting, shard, order, ids=ids)
        rows[ROWS] = layout.order[shard.first : shard.last]
        write_shard(path, shard, rows, identity=summary.identity)
        ghosts = len(shard.ghosts["in"]), len(shard.ghosts["out"])
        files = sorted(path.iterdir())
        size = sum(file.stat().st_size for file in files)
        contents = tuple((file.name, *content_of(file)) for file in files) if digests else ()
        entries.append(ShardEntry(path.name, size, "", shard.bounds, shard.edge_bounds, ghosts, contents))
        del shard, rows  # before the next is made
    summary = dataclasses.replace(summary, shards=tuple(entries))
    (folder / SUMMARY).write_text(summary.to_json(), encoding="utf-8")
    return ShardedData(str(folder), summary)
