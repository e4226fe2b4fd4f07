"""The two ways of `dorylax partition`: in memory or, for larger data, over an archive on disk."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np

from dorylax.cli.budget import Memory
from dorylax.config.schema import DataConfig
from dorylax.errors import InputError, named
from dorylax.graph.array_folder import open_arrays
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets.registry import stored_path
from dorylax.graph.mapped import resident_within
from dorylax.graph.partition.layout import Layout
from dorylax.graph.partition.locality import communities
from dorylax.graph.partition.streamed_communities import communities_within
from dorylax.graph.room import check_disk
from dorylax.graph.stream.edge_rows import EdgeRows
from dorylax.graph.stream.reordering import stored_bytes, write_in_order
from dorylax.machine import memory_limit, resident_bytes
from dorylax.memory.sources import shape_of
from dorylax.memory.streamed_partition import MAPPED_SHARE, in_memory_bytes, streams
from dorylax.store.durable import work_folder
from dorylax.trainer.from_config import prepare_data


@runtime_checkable
class Way(Protocol):
    """Differences between the two ways.

    Attributes:
        streams: Whether it works on disk.
    """

    streams: bool

    def working(self, out: Path | None) -> contextlib.AbstractContextManager[object]:
        """Context of all work; `out` is the partition's place on this machine."""
        ...

    def data(self) -> Dataset:
        """Return the data set."""
        ...

    def communities(self, graph: CompressedGraph) -> np.ndarray:
        """Return the community of each row, int32 `[V]`."""
        ...

    def laid_out(self, layout: Layout) -> Dataset | None:
        """Return the data set in the order of a layout, if shards are cut from it."""
        ...


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
        return _InMemory(config)  # loading raises the error
    options: Any = {"servers": servers, "method": method, "ids": ids}
    try:
        on_disk = streams(shape, **options, memory=memory.bytes - resident_bytes())
    except InputError:
        limit = memory_limit()
        if memory.given or (limit is not None and in_memory_bytes(shape, **options) > limit.bytes):
            raise
        on_disk = False
    if not on_disk:
        return _InMemory(config)
    file = stored_path(config.name)
    assert file is not None  # otherwise no array would be mapped, and `streams` would have raised
    return _OnDisk(file, config, memory.bytes)


@final
class _InMemory:
    streams = False

    def __init__(self, config: DataConfig) -> None:
        self._config = config

    def working(self, out: Path | None) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002
        return contextlib.nullcontext()

    def data(self) -> Dataset:
        return prepare_data(self._config)

    def communities(self, graph: CompressedGraph) -> np.ndarray:
        return communities(graph)

    def laid_out(self, layout: Layout) -> Dataset | None:  # noqa: ARG002
        return None


@final
class _OnDisk:
    streams = True

    def __init__(self, file: Path, config: DataConfig, memory: int) -> None:
        self._file, self._config, self._memory = file, config, memory
        self._scratch = Path()

    @contextlib.contextmanager
    def working(self, out: Path | None) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if out is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-partition-"))
                self._scratch = Path(folder)
            else:
                self._scratch = stack.enter_context(work_folder(out))
                stack.enter_context(named(out))
            stack.enter_context(resident_within(self._memory // MAPPED_SHARE))
            yield

    def data(self) -> Dataset:
        return prepare_data(self._config, self._scratch / "features")

    def communities(self, graph: CompressedGraph) -> np.ndarray:
        return communities_within(EdgeRows.of_arrays(*graph.host_rows()), self._scratch, self._room())

    def laid_out(self, layout: Layout) -> Dataset | None:
        path = self._scratch / "laid-out"
        with open_arrays(self._file, verify=self._config.verify) as stored:
            total, largest = stored_bytes(stored)
            # Shards are about as large as the data set. With normalised features there is another copy, and soon a third.
            check_disk(path, 2 * total + largest)
            write_in_order(stored, layout.order.astype(np.int32), path, self._scratch, room=self._room())
        # Its checksums are not verified, since it was written just now.
        config = self._config.model_copy(update={"name": str(path), "verify": False})
        return prepare_data(config, self._scratch / "features-laid-out")

    def _room(self) -> int:
        return self._memory - self._memory // MAPPED_SHARE - resident_bytes()
