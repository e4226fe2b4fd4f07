"""From a data set to what servers hold of it: laid out by a partition, cut into shards, and written for other processes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dorylax.aligned import rows_of
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.npz import MASKS as MASK_NAMES
from dorylax.graph.partition import Layout
from dorylax.graph.shard import Shard, shards
from dorylax.graph.shard_files import write_shard
from dorylax.graph.shard_names import SUMMARY, shard_name
from dorylax.graph.sharded_data import ShardedData, ShardEntry, ShardsSummary, mask_counts
from dorylax.ops.edge_order import to_slots
from dorylax.ops.row_random import edge_ids, vertex_ids
from dorylax.pipeline.interval_data import MASKS, ROWS, row_name


class LaidOut(NamedTuple):
    """A data set in the order of a layout.

    Attributes:
        rows: int64 `[V]`: which row of the data set each is.
        graph: the laid-out graph.
        features: `[V, F]`.
        labels: `[V, …]`.
        masks: bool `[3, V]`: training, validation, test.
        vertex_inputs: name → `[V, …]`.
        edge_inputs: name → `[E, …]`, in order of edge ids.
    """

    rows: np.ndarray
    graph: CompressedGraph
    features: np.ndarray
    labels: np.ndarray
    masks: np.ndarray
    vertex_inputs: Mapping[str, np.ndarray]
    edge_inputs: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, data: Dataset, layout: Layout) -> LaidOut:
        """That of a data set."""
        order = layout.order
        return cls(
            order,
            data.graph.reorder(order),
            rows_of(data.features, order),
            data.labels[order],
            np.stack([getattr(data, name)[order] for name in MASK_NAMES]),
            {name: rows_of(array, order) for name, array in data.vertex_inputs.items()},
            data.edge_inputs,
        )

    def own_rows(self, shard: Shard, edges: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What lies beside a shard, by name: views of the server's rows.

        Args:
            shard: the server's part of the graph.
            edges: of `edge_rows`.
        """
        vertices, slots = slice(shard.first, shard.last), slice(shard.first_edge, shard.last_edge)
        rows = {
            row_name("rows", "features"): self.features[vertices],
            row_name("labels", "labels"): self.labels[vertices],
            row_name("ids", "vertex ids"): np.asarray(vertex_ids(self.graph))[vertices],
            MASKS: self.masks[:, vertices],
            ROWS: self.rows[vertices],
        }
        rows |= {row_name("rows", name): array[vertices] for name, array in self.vertex_inputs.items()}
        return rows | {name: array[slots] for name, array in edges.items()}

    def edge_rows(self, *, ids: bool) -> dict[str, np.ndarray]:
        """Values per edge by name, in order of slots; with edge ids and places where asked for."""
        graph = self.graph
        found = {row_name("rows", name): to_slots(graph, array) for name, array in self.edge_inputs.items()}
        if ids:
            own = found[row_name("ids", "edge ids")] = to_slots(graph, edge_ids(graph))
            places = own if graph.edge_ids is None else to_slots(graph, np.arange(graph.num_edges, dtype=np.int32))
            found[row_name("places", "edge places")] = places
        return {name: np.asarray(array) for name, array in found.items()}


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
    """Lays a data set out and writes each server's file, and the summary last.

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
    own = LaidOut.of(data, layout)
    pieces = shards(own.graph, layout)
    edges = own.edge_rows(ids=ids)
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
    for shard in pieces:
        path = folder / shard_name(shard.server)
        write_shard(path, shard, own.own_rows(shard, edges), identity=summary.identity)
        ghosts = len(shard.ghosts["in"]), len(shard.ghosts["out"])
        sha256 = _sha256(path) if digests else ""
        entries.append(ShardEntry(path.name, path.stat().st_size, sha256, shard.bounds, shard.edge_bounds, ghosts))
    summary = dataclasses.replace(summary, shards=tuple(entries))
    (folder / SUMMARY).write_text(summary.to_json(), encoding="utf-8")
    return ShardedData(str(folder), summary)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
