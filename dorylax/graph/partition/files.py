"""A saved partition.

    FOLDER/partition.json   {"format": "dorylax-partition", "version": 2, "num_vertices": V, "num_parts": P,
                             "method": …, "balance": …, "seed": …, "graph_digest": …,
                             "sha256": of all other keys and of parts.npy}
    FOLDER/parts.npy        the server of each row, int32 [V]

Reading is strict: an unknown or missing key, another version, a value or array that does not fit, or another SHA-256, is an
error. There is never a half-written partition (`dorylax.store.durable`). Version 1 had no `sha256`.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.graph.npz import NPY_DAMAGE
from dorylax.graph.partition.errors import PartitionError
from dorylax.graph.shard_names import is_of_shards
from dorylax.store.durable import leftover_of, make_folder, write_folder

FORMAT = "dorylax-partition"
VERSION = 2

_RECORD, _PARTS = "partition.json", "parts.npy"
_FIELDS: dict[str, type] = {"num_parts": int, "method": str, "balance": str, "seed": int, "graph_digest": str}
_KEYS: dict[str, type] = {"format": str, "version": int, "num_vertices": int} | _FIELDS
_DIGEST = "sha256"
_HEADER = 4096  # bytes; that of parts.npy is shorter
_BETWEEN_SECONDS = 1.0  # far more than two renames take; what a killed process has left waits no longer


def check_free(folder: Path) -> None:
    """Passes where a partition may be saved.

    Raises:
        PartitionError: there is a file at the path, or a folder that holds anything but a saved partition, or it is the
            current one, which would be another when it is replaced.
    """
    if folder.resolve() == Path.cwd():
        raise PartitionError(f"{folder} is the current folder: choose a new folder for the partition")
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:  # asked once: another process may just be replacing it
        return
    except NotADirectoryError:
        raise PartitionError(f"{folder} is a file: choose a new folder for the partition") from None
    others = {name for name in names - {_RECORD, _PARTS} if not is_of_shards(name)}
    if names and (_RECORD not in names or others):
        other = ", ".join(sorted(others)[:3]) or _PARTS
        raise PartitionError(f"{folder} holds something other than a partition ({other}): choose a new folder")


def write(
    folder: Path, parts: np.ndarray, fields: Mapping[str, Any], beside: Callable[[Path], object] | None = None
) -> None:
    """Saves `parts` and the fields of a partition beside it.

    Args:
        folder: a free one (`check_free`); parents are made.
        parts: int32 `[V]`.
        fields: the values of partition.json that say how it was made.
        beside: writes shards into the folder that it is given.

    Raises:
        PartitionError: as `check_free`.
        OSError: the file system refuses.
    """
    check_free(folder)
    make_folder(folder.parent)

    def fill(new: Path) -> None:
        if beside is not None:
            beside(new)
        content = io.BytesIO()
        np.save(content, parts, allow_pickle=False)
        (new / _PARTS).write_bytes(content.getbuffer())
        record = {"format": FORMAT, "version": VERSION, "num_vertices": len(parts), **fields}
        record[_DIGEST] = _digest(record, content.getbuffer())
        (new / _RECORD).write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")

    write_folder(folder, fill)


def read(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """A saved partition: `parts`, int32 `[V]`, and the fields that `write` was given.

    Raises:
        PartitionError: there is none in the folder, it is of another version, or it is damaged.
        OSError: the file system refuses.
    """
    until = time.monotonic() + _BETWEEN_SECONDS
    while True:
        before = _identity(folder)
        try:
            found = _read(folder)
        except (PartitionError, OSError):
            if before is None and _is_being_replaced(folder) and time.monotonic() < until:
                time.sleep(_BETWEEN_SECONDS / 100)
            elif _identity(folder) == before:
                raise
            continue
        if _identity(folder) == before:
            return found
        # Another process has put a new one in its place meanwhile: these may be files of both.


def _is_being_replaced(folder: Path) -> bool:
    """Whether a process may be between two renames, when there is neither folder: where names cannot be exchanged."""
    try:
        return any(leftover_of(path) == folder.name for path in folder.parent.iterdir())
    except OSError:
        return False


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _read(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    path = folder / _RECORD
    if not path.is_file():
        raise PartitionError(f"{folder} is not a saved partition: it has no {_RECORD} (`dorylax partition` makes one)")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    _check_record(path, record)
    vertices, servers = record["num_vertices"], record["num_parts"]
    path = folder / _PARTS
    try:
        size, most = path.stat().st_size, 4 * vertices + _HEADER
        if size > most:
            raise _damaged(path, f"it has {size:,} bytes, and {vertices:,} vertices take at most {most:,}")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise _damaged(path, "it is not there") from error
    if _DIGEST in record and _digest(record, content) != record[_DIGEST]:
        raise _damaged(path, f"it and {_RECORD} are not what was written: their SHA-256 is another")
    try:
        parts = np.load(io.BytesIO(content), allow_pickle=False)
    except NPY_DAMAGE as error:
        raise _damaged(path, str(error)) from error
    if parts.dtype != np.int32 or parts.shape != (vertices,):
        raise _damaged(path, f"expected int32 [{vertices}], got {parts.dtype} {list(parts.shape)}")
    if vertices and not (parts.min() >= 0 and parts.max() < servers):
        raise _damaged(path, f"servers must be in 0 … {servers - 1}, got {parts.min()} … {parts.max()}")
    return parts, {name: record[name] for name in _FIELDS}


def _check_record(path: Path, record: Any) -> None:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise PartitionError(f"{path} is not of a dorylax partition: its format must be {FORMAT!r}")
    version = record.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise PartitionError(
            f"{path} has version {version!r}, this dorylax reads version {VERSION}: make the partition again"
        )
    keys = _KEYS if version == 1 else _KEYS | {_DIGEST: str}
    if unknown := sorted(record.keys() - keys.keys()):
        raise _damaged(path, f"unknown keys: {', '.join(unknown)}")
    for key, expected in keys.items():
        if type(record.get(key)) is not expected:  # a bool is an int to isinstance
            raise _damaged(path, f"{key} must be {expected.__name__}, got {record.get(key)!r}")
    if record["num_vertices"] < 0:
        raise _damaged(path, f"num_vertices must be ≥ 0, got {record['num_vertices']}")
    if record["num_parts"] < 1:
        raise _damaged(path, f"num_parts must be ≥ 1, got {record['num_parts']}")


def _digest(record: Mapping[str, Any], parts: bytes | memoryview) -> str:
    """Of the record's other keys, and the content of parts.npy."""
    rest = {key: value for key, value in record.items() if key != _DIGEST}
    found = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    found.update(parts)
    return found.hexdigest()


def _damaged(path: Path, why: str) -> PartitionError:
    return PartitionError(f"{path} is damaged ({why}): make the partition again")
