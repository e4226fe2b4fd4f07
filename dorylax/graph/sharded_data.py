"""A data set that is cut into shards: folders of arrays (`dorylax.graph.array_folder`), their summary, and access to them.

    shards.json       the summary
    server-0/         one folder per server, of its part of the graph and of its rows:
      bounds          int64 [5]: the server; its first and last row, its first and last edge in the laid-out graph
      intervals       int64 [2, k+1]: `Shard.bounds`, `Shard.edge_bounds`
      <d>_offsets, <d>_neighbours, <d>_ghosts, <d>_ghost_bounds, <d>_sends, <d>_sent
                      for d = in and out; without those of out where both directions are the same, in a symmetric graph
      pushes, pushed
      identity        a value: `ShardsSummary.identity`, so that shards of two partitions are never mixed
      row_<name>      rows of the server's vertices or edges; any number of them

`sends` (int64 [M, 3]: interval, peer, rows) and `pushes` (int64 [M, 2]: peer, rows) are the lengths of the pieces whose
concatenations are `sent` and `pushed`. Earlier versions stored a shard as one `.npz` archive. All lie in the folder of
their partition (`dorylax.graph.partition.base`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import jax
import numpy as np
from pydantic import TypeAdapter, ValidationError

from dorylax.graph.array_names import MASKS
from dorylax.graph.cache import cache_directory
from dorylax.graph.compressed import Adjacency
from dorylax.graph.data_shape import AbstractData, DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph_arrays import save_arrays
from dorylax.graph.manifest import DIGEST, SUMMARY, digest, signed_json
from dorylax.graph.mapped import State, check_state, state_of
from dorylax.graph.shard import DIRECTIONS, Sends, Shard
from dorylax.graph.stored import StoredArrays, open_arrays
from dorylax.graph.validate import GraphError
from dorylax.store.base import Content
from dorylax.store.places import LocalStorage, open_storage

_ROWS = "row_"
_AGAIN = "make the partition again (dorylax partition)"
Masks = tuple[int, int, int]


@final
@dataclasses.dataclass(frozen=True)
class ShardEntry:
    """Summary of a server's shard.

    Attributes:
        file: Name of its folder; in version 1 of its file.
        num_bytes: Size in bytes.
        sha256: SHA-256 of the file of version 1.
        bounds, edge_bounds: Its intervals in rows, 0 … n, and their in-edges; k + 1 numbers each.
        ghosts: Number of ghosts over in-edges, and over out-edges.
        files: Name, size and SHA-256 of each file in the folder; empty if no other machine will read them.
    """

    file: str
    num_bytes: int
    sha256: str
    bounds: tuple[int, ...]
    edge_bounds: tuple[int, ...]
    ghosts: tuple[int, int]
    files: tuple[tuple[str, int, str], ...] = ()


@final
@dataclasses.dataclass(frozen=True)
class ShardsSummary:
    """The content of shards.json.

    Attributes:
        name, shape: Name and sizes of the data set.
        features: dtype of the features.
        masks: Numbers of training, validation and test vertices.
        description: Description of the data set (`describe_data`).
        settings: Section `data` of the configuration that loaded it; None if a program has made it.
        graph_digest: Digest of the graph that was partitioned.
        intervals: Intervals of each server.
        edge_ids: Whether the files hold edge ids.
        shards: Entries of all servers.
    """

    name: str
    shape: DataShape
    features: str
    masks: Masks
    description: dict[str, Any]
    settings: dict[str, Any] | None
    graph_digest: str
    intervals: int
    edge_ids: bool
    shards: tuple[ShardEntry, ...] = ()
    format: Literal["dorylax-shards"] = "dorylax-shards"
    version: Literal[1, 2] = 2

    @property
    def identity(self) -> str:
        """What the files carry: 32 hexadecimal digits of everything but themselves."""
        fields = dataclasses.asdict(self)
        del fields["shards"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """The text of the file, with its own digest."""
        return signed_json(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str, origin: str) -> ShardsSummary:
        """Parse the text of a file, `origin` in errors. Raises a GraphError if it is damaged, or of another version."""
        try:
            fields = json.loads(text)
            version = fields["version"]
            if version not in (1, 2):
                raise GraphError(
                    f"{origin} has version {version!r}, this dorylax reads version {cls.version}: {_AGAIN}"
                )
            if fields.pop(DIGEST) != digest(fields):
                raise GraphError(f"{origin} is not what was written: its SHA-256 is another: {_AGAIN}")
            return _READER.validate_json(json.dumps(fields), strict=True)
        except GraphError:
            raise
        except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
            what = str(error).splitlines()[0]
            raise GraphError(f"{origin} is damaged ({type(error).__name__}: {what}): {_AGAIN}") from error


_READER = TypeAdapter(ShardsSummary)


@final
class ShardedData:
    """A data set whose arrays are in the files of servers.

    Args:
        folder: Folder of the files: a path or an `s3://` URL.
        summary: Their summary.
        verify: Whether memory-mapped arrays are compared with their checksums the first time that they are loaded.
    """

    def __init__(self, folder: str, summary: ShardsSummary, *, verify: bool = True) -> None:
        self.folder, self.summary, self._verify = folder, summary, verify
        self._states: dict[Path, State] = {}

    @classmethod
    def find(cls, folder: str | os.PathLike[str], *, verify: bool = True) -> ShardedData | None:
        """The data set whose shards lie in a folder of this machine or below `s3://…`; None if there are none.

        Raises:
            GraphError: Their summary is damaged.
            ValueError: The folder is neither a path nor `s3://bucket/prefix`.
            OSError: A file cannot be read.
        """
        with contextlib.closing(open_storage(os.fspath(folder))) as storage:
            try:
                text = storage.read(SUMMARY).decode()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except UnicodeDecodeError as error:
                raise GraphError(f"{SUMMARY} in {storage.url} is damaged ({error}): {_AGAIN}") from None
            found = cls(storage.url, ShardsSummary.from_json(text, f"{SUMMARY} in {storage.url}"), verify=verify)
            if isinstance(storage, LocalStorage):
                for path in (storage.path(entry.file) for entry in found.summary.shards):
                    files = path.iterdir() if path.is_dir() else [path] if path.is_file() else []
                    found._states |= {file: state_of(str(file)) for file in files}
            return found

    def check_unchanged(self) -> None:
        """Raise a RunError if a file in a folder of this machine was written to or replaced since it was found."""
        for path, state in self._states.items():
            check_state(path, state)

    def shard(self, server: int) -> tuple[Shard, dict[str, np.ndarray]]:
        """Return a server's shard, memory-mapped, and its further rows.

        Shards in S3 are copied into the cache first, and compared with the SHA-256 in the summary. Raises a GraphError
        if the shard is damaged, or belongs to another partition, and an OSError if a file cannot be read or copied.
        """
        entry = self.summary.shards[server]
        with contextlib.closing(open_storage(self.folder)) as storage:
            if isinstance(storage, LocalStorage):
                path = storage.path(entry.file)  # verified while it is read
            else:
                copies = cache_directory() / "shards" / hashlib.sha256(repr(entry.files or entry).encode()).hexdigest()
                files = {name: Content(size, sha256) for name, size, sha256 in entry.files}
                one = {entry.file: Content(entry.num_bytes, entry.sha256)}  # a shard of version 1
                with storage.verified(entry.file if files else "", files or one, copies) as folder:
                    path = folder if files else folder / entry.file
        return read_shard(path, identity=self.summary.identity, verify=self._verify)

    @cached_property
    def abstract(self) -> AbstractData:
        """Shapes in the place of arrays."""
        found = abstract_data(self.summary.shape)
        return found._replace(features=jax.ShapeDtypeStruct(found.features.shape, self.summary.features))

    @property
    def name(self) -> str:
        """Of the data set."""
        return self.summary.name

    @property
    def num_servers(self) -> int:
        """How many shards there are."""
        return len(self.summary.shards)

    @property
    def homes(self) -> tuple[int, ...]:
        """The server of each interval of the whole graph."""
        return homes_of(self.summary.shards)


def shapes_of(data: Dataset | ShardedData) -> Dataset | AbstractData:
    """The data itself, or abstract data in the place of sharded data."""
    return data.abstract if isinstance(data, ShardedData) else data


def mask_counts(data: Dataset | ShardedData) -> Masks:
    """How many vertices of a data set train, validate and test."""
    if isinstance(data, ShardedData):
        return data.summary.masks
    train, val, test = (int(np.count_nonzero(getattr(data, name))) for name in MASKS)
    return train, val, test


def homes_of(shards: Sequence[Any]) -> tuple[int, ...]:
    """The server of each interval of the whole graph, from objects with `bounds` (shards, or their entries), in order."""
    return tuple(server for server, shard in enumerate(shards) for _ in shard.bounds[1:])


def write_shard(path: Path, shard: Shard, rows: Mapping[str, np.ndarray], *, identity: str) -> None:
    """Write a shard, and arrays with a row for each of its vertices or in-edges, to a folder.

    `identity` is that of the summary that the shard belongs to.
    """
    arrays = {
        "bounds": np.array([shard.server, *shard.rows, *shard.edges], np.int64),
        "intervals": np.array([shard.bounds, shard.edge_bounds], np.int64),
    }
    for direction in DIRECTIONS:
        adjacency = shard.incoming if direction == "in" else shard.outgoing
        if direction == "out" and adjacency is shard.incoming:
            break
        arrays[f"{direction}_offsets"] = np.asarray(adjacency.offsets)
        arrays[f"{direction}_neighbours"] = np.asarray(adjacency.neighbours)
        arrays[f"{direction}_ghosts"] = shard.ghosts[direction]
        arrays[f"{direction}_ghost_bounds"] = shard.ghost_bounds[direction]
        sends = [(k, peer, sent) for k, each in enumerate(shard.sends[direction]) for peer, sent in each]
        arrays[f"{direction}_sends"], arrays[f"{direction}_sent"] = _joined(sends, 3)
    arrays["pushes"], arrays["pushed"] = _joined(shard.pushes, 2)
    arrays["identity"] = np.array(identity)
    save_arrays(path, arrays | {f"{_ROWS}{name}": values for name, values in rows.items()})


def read_shard(path: Path, *, identity: str, verify: bool = True) -> tuple[Shard, dict[str, np.ndarray]]:
    """Read a shard and the further rows in its folder, or in the archive of an earlier version.

    Raises a GraphError if the shard is damaged, is something else, or belongs to a summary of another identity.
    """
    with open_arrays(path, verify=verify) as stored:
        stored.require("bounds", "intervals", "identity")
        if (found := str(stored.fetch("identity"))) != identity:
            raise GraphError(
                f"{path} belongs to another partition (identity {found!r}, expected {identity!r}): make the partition again"
            )
        shard = _shard(stored)
        names = [name for name in stored.names if name.startswith(_ROWS)]
        return shard, {name.removeprefix(_ROWS): stored.fetch(name) for name in names}


def _shard(stored: StoredArrays) -> Shard:
    bounds, (own, edges) = stored.fetch("bounds"), stored.fetch("intervals")
    if bounds.shape != (5,) or len(own) < 2 or (own[-1], edges[-1]) != (bounds[2] - bounds[1], bounds[4] - bounds[3]):
        raise GraphError("is no shard: its bounds contradict each other")
    server, first, last, first_edge, last_edge = map(int, bounds)
    parts: dict[str, tuple[Adjacency, np.ndarray, np.ndarray, Sends]] = {}
    for d in DIRECTIONS if "out_offsets" in stored else DIRECTIONS[:1]:
        rows = Adjacency(stored.fetch(f"{d}_offsets"), stored.fetch(f"{d}_neighbours"))
        sends: list[list[tuple[int, np.ndarray]]] = [[] for _ in own[1:]]
        for (interval, peer), sent in _cut(stored.fetch(f"{d}_sends"), stored.fetch(f"{d}_sent")):
            sends[interval].append((int(peer), sent))
        parts[d] = rows, stored.fetch(f"{d}_ghosts"), stored.fetch(f"{d}_ghost_bounds"), tuple(map(tuple, sends))
    into, out = parts["in"], parts.get("out", parts["in"])
    return Shard(
        server=server,
        rows=(first, last),
        edges=(first_edge, last_edge),
        bounds=tuple(own.tolist()),
        edge_bounds=tuple(edges.tolist()),
        incoming=into[0],
        outgoing=out[0],
        ghosts={"in": into[1], "out": out[1]},
        ghost_bounds={"in": into[2], "out": out[2]},
        sends={"in": into[3], "out": out[3]},
        pushes=tuple((int(peer), rows) for (peer,), rows in _cut(stored.fetch("pushes"), stored.fetch("pushed"))),
    )


def _joined(pieces: Sequence[tuple[Any, ...]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """A line for each piece, its numbers and the length of its rows; and the rows of all pieces."""
    table = np.array([(*numbers, len(rows)) for *numbers, rows in pieces], np.int64).reshape(-1, width)
    return table, np.concatenate([np.zeros(0, np.int64), *(rows for *_, rows in pieces)])


def _cut(table: np.ndarray, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inverse of `_joined`."""
    return list(zip(table[:, :-1], np.split(rows, np.cumsum(table[:-1, -1])) if len(table) else (), strict=True))
