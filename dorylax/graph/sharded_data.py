"""A data set that is cut into shards: its summary, and access to the shards.

    shards.json     the summary
    server-0/       one folder per server (`dorylax.graph.shard_files`)

They lie in the folder of their partition (`dorylax.graph.partition.base`). Each shard carries the identity of
its summary, so that shards of two partitions are never mixed.
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
from typing import Any, Literal, TypeVar, final

import jax
import numpy as np
from pydantic import TypeAdapter, ValidationError

from dorylax.graph.array_names import MASKS
from dorylax.graph.cache import cache_directory
from dorylax.graph.data_shape import AbstractData, DataShape, abstract_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.manifest import SUMMARY
from dorylax.graph.mapped import check_state
from dorylax.graph.shard import Shard
from dorylax.graph.shard_files import read_shard
from dorylax.graph.task_data import TaskData
from dorylax.graph.validate import GraphError
from dorylax.graph.verification import State, state_of
from dorylax.store.base import Content, Storage, check_name, has_content
from dorylax.store.durable import make_folder
from dorylax.store.local import LocalStorage
from dorylax.store.places import local_copy, open_storage

_DIGEST = "sha256"
Masks = tuple[int, int, int]


D = TypeVar("D", bound=Dataset | TaskData)


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
        fields = dataclasses.asdict(self)
        return json.dumps({**fields, _DIGEST: _digest(fields)}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, origin: str) -> ShardsSummary:
        """Parse the text of a file, `origin` in errors. Raises a GraphError if it is damaged, or of another version."""
        again = "make the partition again (dorylax partition)"
        try:
            fields = json.loads(text)
            version = fields["version"]
            if version not in (1, 2):
                raise GraphError(f"{origin} has version {version!r}, this dorylax reads version {cls.version}: {again}")
            if fields.pop(_DIGEST) != _digest(fields):
                raise GraphError(f"{origin} is not what was written: its SHA-256 is another: {again}")
            return _READER.validate_json(json.dumps(fields), strict=True)
        except GraphError:
            raise
        except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
            what = str(error).splitlines()[0]
            raise GraphError(f"{origin} is damaged ({type(error).__name__}: {what}): {again}") from error


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
                again = "make the partition again (dorylax partition)"
                raise GraphError(f"{SUMMARY} in {storage.url} is damaged ({error}): {again}") from None
            found = cls(storage.url, ShardsSummary.from_json(text, f"{SUMMARY} in {storage.url}"), verify=verify)
            if isinstance(storage, LocalStorage):
                for path in (storage.path(entry.file) for entry in found.summary.shards):
                    files = path.iterdir() if path.is_dir() else [path] if path.is_file() else []
                    found._states |= {file: state_of(str(file)) for file in files}
            return found

    def check_unchanged(self) -> None:
        """Raise a ChangedFileError if a file in a folder of this machine was written to or replaced since it was found."""
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
            elif not entry.files:
                content = Content(entry.num_bytes, entry.sha256)
                path = local_copy(storage, entry.file, content, cache_directory() / "shards")
            else:
                path = cache_directory() / "shards" / hashlib.sha256(repr(entry.files).encode()).hexdigest()
                make_folder(path)
                for name, size, sha256 in entry.files:
                    _copy(storage, check_name(f"{entry.file}/{name}"), path / name, Content(size, sha256))
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


def _copy(storage: Storage, name: str, path: Path, content: Content) -> None:
    """Copy a stored file to a path, unless the file there has the same content."""
    if not has_content(path, content):
        storage.fetch(name, path, content)


def shapes_of(data: D | ShardedData) -> D | AbstractData:
    """The data itself, or abstract data in the place of sharded data."""
    return data.abstract if isinstance(data, ShardedData) else data


def mask_counts(data: Dataset | TaskData | ShardedData) -> Masks:
    """How many vertices of a data set train, validate and test."""
    if isinstance(data, ShardedData):
        return data.summary.masks
    train, val, test = (int(np.count_nonzero(getattr(data, name))) for name in MASKS)
    return train, val, test


def homes_of(shards: Sequence[Any]) -> tuple[int, ...]:
    """The server of each interval of the whole graph, from objects with `bounds` (shards, or their entries), in order."""
    return tuple(server for server, shard in enumerate(shards) for _ in shard.bounds[1:])


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()
