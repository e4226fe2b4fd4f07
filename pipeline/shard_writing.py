"""Writer of a data set's shards: the shard and the rows of each server, for other processes."""

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
        folder: Existing output folder.
        data: The data set.
        layout: Layout of its graph.
        ids: Whether to write edge ids: 4 bytes per edge, or 8 if they differ from the positions of edges.
        description: Description of the data set (`describe_data`), for the comparison of runs.
        graph_digest: Digest of the graph (`graph.partition.graph_digest`), which identifies its partitions.
        settings: Configuration section from which the data set was loaded; None if a program created it.
        digests: Whether the summary lists the SHA-256 of files, for machines that copy them.
        laid_out: The data set in the order of the layout, if stored on disk in that order. Rows of a server are then read
            sequentially.

    Returns:
        The sharded data.

    Raises:
        OSError: A file cannot be written.
    """
    source, order = (data, layout.order) if laid_out is None else (laid_out, np.arange(data.graph.num_vertices))
    cutting = Cutting(source.graph, dataclasses.replace(layout, order=order))
    summary = ShardsSummary(
        name=data.name,
        shape=dataclasses.replace(
            DataShape.of(data),
            edge_ids=data.graph.edge_ids_fit,
            features_in="elsewhere",  # readers of the files do not depend on the storage of the arrays
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
        del shard, rows  # free memory before the next shard
    summary = dataclasses.replace(summary, shards=tuple(entries))
    (folder / SUMMARY).write_text(summary.to_json(), encoding="utf-8")
    return ShardedData(str(folder), summary)
