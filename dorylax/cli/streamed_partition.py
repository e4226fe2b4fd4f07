"""The two ways of `dorylax partition`: in memory or, for larger data, over an archive on disk."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.cli.options import Memory
from dorylax.config.schema import DataConfig
from dorylax.errors import InputError, named
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets.registry import stored_path
from dorylax.graph.edge_rows import EdgeRows, Source
from dorylax.graph.mapped import resident_within
from dorylax.graph.partition.layout import Layout
from dorylax.graph.partition.locality import communities, communities_within
from dorylax.graph.partition.partitioners import Method
from dorylax.graph.reordering import stored_bytes, write_in_order
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import check_disk, gibibytes
from dorylax.machine import memory_limit, resident_bytes
from dorylax.memory.hosts import partitioning
from dorylax.memory.phases import communities as communities_bytes
from dorylax.memory.sources import shape_of
from dorylax.store.durable import work_folder
from dorylax.trainer.from_config import prepare_data

_MAPPED_SHARE = 8  # of the memory, one part in so many is for pages of the archive
# Parts, orders and their inverse, labels, in-degrees and their sums, a server's numbering; and whether each vertex is a
# ghost of each server.
_VERTEX_BYTES = 64


@final
class Way:
    """A way to partition a data set: in memory, or over its file on disk within a number of bytes.

    Attributes:
        streams: Whether it works on disk.
    """

    def __init__(self, config: DataConfig, file: Path | None = None, memory: int = 0) -> None:
        self._config, self._file, self._memory = config, file, memory
        self.streams = file is not None
        self._scratch = Path()

    @contextlib.contextmanager
    def working(self, out: Path | None) -> Iterator[None]:
        """Context of all work; `out` is the partition's place on this machine."""
        with contextlib.ExitStack() as stack:
            if self.streams:
                if out is None:
                    self._scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-partition-")))
                else:
                    self._scratch = stack.enter_context(work_folder(out))
                    stack.enter_context(named(out))
                stack.enter_context(resident_within(self._memory // _MAPPED_SHARE))
            yield

    def data(self) -> Dataset:
        """Return the data set."""
        return prepare_data(self._config, self._scratch / "features") if self.streams else prepare_data(self._config)

    def communities(self, graph: CompressedGraph) -> np.ndarray:
        """Return the community of each row, int32 `[V]`."""
        if not self.streams:
            return communities(graph)
        return communities_within(EdgeRows(*map(Source.held, graph.host_rows())), self._scratch, self._room())

    def laid_out(self, layout: Layout) -> Dataset | None:
        """Return the data set in the order of a layout, from which shards are cut; None in memory."""
        if self._file is None:
            return None
        path = self._scratch / "laid-out"
        with open_arrays(self._file, verify=self._config.verify) as stored:
            total, largest = stored_bytes(stored)
            # Shards are about as large as the data set. With normalised features there is another copy, and soon a third.
            check_disk(path, 2 * total + largest)
            write_in_order(stored, layout.order.astype(np.int32), path, room=self._room())
        # Its checksums are not verified, since it was written just now.
        config = self._config.model_copy(update={"name": str(path), "verify": False})
        return prepare_data(config, self._scratch / "features-laid-out")

    def _room(self) -> int:
        return self._memory - self._memory // _MAPPED_SHARE - resident_bytes()


def streaming(config: DataConfig, memory: Memory, *, servers: int, method: str, ids: bool) -> Way:
    """Choose how to partition a data set within a memory budget.

    The default budget leaves memory to other processes. If the data do not fit only for that reason, they are partitioned in
    memory.

    Raises:
        InputError: The given budget, or all the memory there is, is too small.
        GraphError, DatasetError, OSError: As for `shape_of`.
    """
    shape = shape_of(config)
    if shape is None:
        return Way(config)  # loading raises the error
    options: Any = {"servers": servers, "method": method, "ids": ids}
    try:
        on_disk = streams(shape, **options, memory=memory.bytes - resident_bytes())
    except InputError:
        limit = memory_limit()
        if memory.given or (limit is not None and _in_memory_bytes(shape, **options) > limit.bytes):
            raise
        on_disk = False
    if not on_disk:
        return Way(config)
    file = stored_path(config.name)
    assert file is not None  # otherwise no array would be mapped, and `streams` would have raised
    return Way(config, file, memory.bytes)


def _in_memory_bytes(shape: DataShape, *, servers: int, method: Method, ids: bool) -> int:
    """Bytes that a partition takes which is made and cut in memory; arguments as for `streams`."""
    per_edge = 28 if shape.reordered or not shape.symmetric else 8
    cutting = per_edge * shape.num_edges * (ids and shape.edge_ids_fit) + _shard_bytes(shape, servers)
    return sum(shape.copy().values()) + max(partitioning(shape, method, servers), communities_bytes(shape), cutting)


def _shard_bytes(shape: DataShape, servers: int) -> int:
    return (4 * shape.num_edges + 4 * shape.num_vertices * shape.num_features) // servers


def streams(shape: DataShape, *, servers: int, method: Method, ids: bool, memory: int) -> bool:
    """Whether a data set is too large to be partitioned in memory, but not to be partitioned in a stream.

    Args:
        shape: Shape of the data set.
        servers: Number of servers.
        method: The partitioner.
        ids: Whether edge ids are wanted.
        memory: Bytes available in addition to the program.

    Raises:
        InputError: Neither fits; names the reason and the remedy.
    """
    V, E = shape.num_vertices, shape.num_edges
    if _in_memory_bytes(shape, servers=servers, method=method, ids=ids) <= memory:
        return False
    if shape.origin != "archive":
        raise InputError(
            "a partition of this data set takes more than --memory, and only a folder can stay on disk: write one "
            "(Dataset.save), or give more"
        )
    held = {
        "a directed graph, whose rows by target are made in memory,": 0 if shape.graph_in == "mapped" else 24 * E,
        "features that are not float32 rows of their own": 4 * V * shape.num_features * (shape.features_in != "mapped"),
        "edge ids (--no-edge-ids leaves them out)": 28 * E if ids and shape.edge_ids_fit else 0,
        "METIS (--method ldg takes less)": partitioning(shape, method, servers) if method == "metis" else 0,
        f"{V:,} vertices": (_VERTEX_BYTES + servers) * V,
        f"a shard of {servers} (more servers have smaller ones)": _shard_bytes(shape, servers),
    }
    most = memory - memory // _MAPPED_SHARE
    if sum(held.values()) > most:
        told = ", ".join(f"{what} {gibibytes(size)}" for what, size in held.items() if size)
        raise InputError(
            f"a partition in a stream takes more than the {gibibytes(most)} that --memory leaves for it: {told}"
        )
    return True
