"""A partition: which server owns each row of a graph, in memory and on disk.

A saved partition is a folder of arrays (`dorylax.graph.array_folder`) with the array `parts`, int32 [V]. The manifest holds
the other fields as values. Shards that were cut by the partition lie in the same folder (`dorylax.graph.sharded_data`).
Earlier versions wrote partition.json, whose `sha256` covers its other keys and parts.npy; version 1 had no `sha256`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.errors import InputError, RunError
from dorylax.graph.array_folder import FolderWriter, check_target, write_arrays
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.manifest import MANIFEST, OLD_PARTITION, is_array_folder
from dorylax.graph.rows import spans
from dorylax.graph.stored import NPY_DAMAGE, open_arrays
from dorylax.graph.validate import GraphError

_TRIES = 10
_FIELDS: dict[str, type] = {"num_parts": int, "method": str, "balance": str, "seed": int, "graph_digest": str}


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The server of every row of one graph.

    Attributes:
        parts: Server, 0 … num_parts-1, of each row of its graph, int32 `[V]`.
        num_parts: P, the number of servers.
        method: The partitioner.
        balance: Quantity that the partitioner balanced.
        seed: Seed of the partitioner.
        graph_digest: `graph_digest` of its graph.
        folder: Folder that it was read from; None if this process made it.
    """

    parts: np.ndarray
    num_parts: int
    method: str
    balance: str
    seed: int
    graph_digest: str
    folder: Path | None = None

    def check(self, graph: CompressedGraph) -> None:
        """Raise an InputError for another graph than the partition's, or the same one with its rows in another order."""
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
        """Save the partition, whole or not at all.

        Args:
            folder: A new or empty folder, or a saved partition, which is replaced.
            beside: Writes shards into the folder that it is given.

        Raises:
            InputError: As for `check_target`.
            OSError: The file system refuses.
        """
        check_target(Path(folder))

        def fill(writer: FolderWriter) -> None:
            if beside is not None:
                beside(writer.folder)
            for name in ("parts", *_FIELDS):
                writer.add(name, np.asarray(getattr(self, name)))

        write_arrays(Path(folder), fill, provenance={"command": "dorylax partition"})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Partition:
        """Read a saved partition.

        Raises:
            InputError: There is none in the folder, it has another version, or it is damaged.
            OSError: The file system refuses.
        """
        path = Path(folder)
        for left in reversed(range(_TRIES)):
            try:
                parts, fields, record = _read(path) if is_array_folder(path) else _read_old(path)
                break
            except RunError:  # another process has just replaced the folder: read the new one
                if not left:
                    raise
        for name, kind in _FIELDS.items():
            if type(fields[name]) is not kind:  # a bool is an int to isinstance
                raise _damaged(record, f"{name} must be {kind.__name__}, got {fields[name]!r}")
        servers = fields["num_parts"]
        if servers < 1:
            raise _damaged(record, f"num_parts must be ≥ 1, got {servers}")
        if parts.dtype != np.int32 or parts.ndim != 1:
            raise _damaged(record, f"parts must be int32 [V], got {parts.dtype} {list(parts.shape)}")
        if len(parts) and not (parts.min() >= 0 and parts.max() < servers):
            raise _damaged(record, f"servers must be in 0 … {servers - 1}, got {parts.min()} … {parts.max()}")
        return cls(parts, **fields, folder=path)


def graph_digest(graph: CompressedGraph) -> str:
    """Digest of all in-edges, in the order of the graph's rows: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for array in graph.host_rows():
        for start, stop in spans(len(array)):
            digest.update(np.ascontiguousarray(array[start:stop]).data)
    return digest.hexdigest()[:16]


def _read(folder: Path) -> tuple[np.ndarray, dict[str, Any], Path]:
    """Return `parts`, the other fields, and the file that holds them."""
    try:
        with open_arrays(folder) as stored:
            try:
                stored.require("parts", *_FIELDS)
                parts = np.array(stored.fetch("parts"))  # a copy, so that a later change of the file is harmless
                fields = {name: stored.fetch(name).item() for name in _FIELDS}
            finally:
                stored.check_unchanged()
    except GraphError as error:
        raise InputError(f"{error}: make the partition again (`dorylax partition`)") from error
    return parts, fields, folder / MANIFEST


def _read_old(folder: Path) -> tuple[np.ndarray, dict[str, Any], Path]:
    path, array = (folder / name for name in OLD_PARTITION)
    if not path.is_file():
        raise InputError(f"{folder} is not a saved partition: it has no {MANIFEST} (`dorylax partition` makes one)")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        content = array.read_bytes()
        if record["version"] == 2:
            rest = {key: value for key, value in record.items() if key != "sha256"}
            if hashlib.sha256(json.dumps(rest, sort_keys=True).encode() + content).hexdigest() != record["sha256"]:
                raise ValueError(f"it and {array.name} are not what was written: their SHA-256 differs")
        elif record["version"] != 1:
            raise ValueError(f"it has version {record['version']!r}, and this dorylax reads versions 1 and 2")
        parts = np.load(io.BytesIO(content), allow_pickle=False)
        fields = {name: record[name] for name in _FIELDS}
        if record["format"] != "dorylax-partition" or len(parts) != record["num_vertices"]:
            raise ValueError("it is not of this partition")
    except (*NPY_DAMAGE, RecursionError, TypeError) as error:
        raise _damaged(path, str(error)) from error
    return parts, fields, path


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged ({why}): make the partition again")
