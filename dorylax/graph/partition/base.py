"""A partition: which server owns each row of a graph.

How one is made is in `partitioners`, how it lies on disk in `files`, what it costs in `quality`, and the order of rows
that follows from it in `layout`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import final

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.partition.files import read, write
from dorylax.graph.rows import spans


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The server of every row of one graph.

    Attributes:
        parts: the server, 0 … num_parts-1, of each row of the graph it was made for, int32 `[V]`.
        num_parts: P, the number of servers.
        method: the partitioner.
        balance: what it spread evenly.
        seed: of the partitioner.
        graph_digest: `graph_digest` of that graph.
        folder: where it was read from; None where it was made in this process.
    """

    parts: np.ndarray
    num_parts: int
    method: str
    balance: str
    seed: int
    graph_digest: str
    folder: Path | None = None

    def check(self, graph: CompressedGraph) -> None:
        """Passes for the graph of the partition.

        Raises:
            InputError: It is another graph, or the same one with its rows in another order; names the folder of the
                partition.
        """
        origin = "the partition" if self.folder is None else f"the partition in {self.folder}"
        told = f"make one for this graph (`dorylax partition`), or give the graph that {origin} was made for"
        if len(self.parts) != graph.num_vertices:
            raise InputError(
                f"{origin} is of a graph of {len(self.parts)} vertices, this one has {graph.num_vertices}: {told}"
            )
        if (digest := graph_digest(graph)) != self.graph_digest:
            raise InputError(
                f"{origin} is of another graph (digest {self.graph_digest}, this one has {digest}) or of another order "
                f"of its rows: {told}"
            )

    def save(self, folder: str | os.PathLike[str], beside: Callable[[Path], object] | None = None) -> None:
        """Saves the partition, whole or not at all; see `files` for what lies in the folder.

        Args:
            folder: a new or empty one, or one that holds a saved partition and nothing else, which is then replaced.
            beside: writes the shards that were cut by it into the folder that it is given.

        Raises:
            InputError: there is something else at the path.
            OSError: the file system refuses.
        """
        fields = dataclasses.asdict(self)
        del fields["folder"]
        write(Path(folder), fields.pop("parts"), fields, beside)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Partition:
        """A saved partition.

        Raises:
            InputError: there is none in the folder, it is of another version, or it is damaged.
            OSError: the file system refuses.
        """
        parts, fields = read(Path(folder))
        return cls(parts, **fields, folder=Path(folder))


def graph_digest(graph: CompressedGraph) -> str:
    """Of all in-edges, in the order of the graph's rows: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for array in graph.host_rows():
        for start, stop in spans(len(array)):
            digest.update(np.ascontiguousarray(array[start:stop]).data)
    return digest.hexdigest()[:16]
