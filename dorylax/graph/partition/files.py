"""A saved partition: a folder of arrays (`dorylax.graph.array_folder`) with the array `parts`, int32 [V].

The manifest holds the other fields of a partition as values. Shards that were cut by the partition lie in the same folder
(`dorylax.graph.sharded_data`). Earlier versions wrote partition.json, whose `sha256` covers its other keys and parts.npy;
version 1 of it had no `sha256`.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.array_folder import FolderWriter, check_target, open_arrays, write_arrays
from dorylax.graph.manifest import MANIFEST, is_array_folder
from dorylax.graph.mapped import ChangedFileError
from dorylax.graph.shard_names import OLD_PARTITION
from dorylax.graph.stored import NPY_DAMAGE
from dorylax.graph.validate import GraphError

_FIELDS: dict[str, type] = {"num_parts": int, "method": str, "balance": str, "seed": int, "graph_digest": str}


def check_free(folder: Path) -> None:
    """Pass if a partition may be saved.

    Raises:
        InputError: The path is a file, the current folder, or a folder that holds anything but a saved partition.
    """
    try:
        check_target(folder)
    except GraphError as error:
        raise InputError(str(error)) from error


def write(
    folder: Path, parts: np.ndarray, fields: Mapping[str, Any], beside: Callable[[Path], object] | None = None
) -> None:
    """Save `parts` and the fields of a partition.

    Args:
        folder: Folder, free as for `check_free`; missing parents are made.
        parts: Server of each row, int32 `[V]`.
        fields: Other fields of the partition.
        beside: Writes shards into the folder that it is given.

    Raises:
        InputError: As for `check_free`.
        OSError: The file system refuses.
    """
    check_free(folder)

    def fill(writer: FolderWriter) -> None:
        if beside is not None:
            beside(writer.folder)
        writer.add("parts", parts)
        for name, value in fields.items():
            writer.add(name, np.array(value))

    write_arrays(folder, fill, provenance={"command": "dorylax partition"})


def read(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return a saved partition: `parts`, int32 `[V]`, and the other fields.

    Raises:
        InputError: There is none in the folder, it has another version, or it is damaged.
        OSError: The file system refuses.
    """
    while True:
        try:
            return _read(folder)
        except ChangedFileError:  # another process has just replaced the folder: read the new one
            continue


def _read(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    if not is_array_folder(folder):
        return _read_old(folder)
    try:
        stored = open_arrays(folder)
    except GraphError as error:
        raise InputError(str(error)) from error
    try:
        with stored:
            stored.require("parts", *_FIELDS)
            # A copy, so that a later change of the file is harmless.
            parts, fields = np.array(stored.fetch("parts")), {name: stored.fetch(name).item() for name in _FIELDS}
            stored.check_unchanged()
    except GraphError as error:
        stored.check_unchanged()
        raise InputError(f"{error}: make the partition again (`dorylax partition`)") from error
    return _checked(folder / MANIFEST, parts, fields)


def _read_old(folder: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Read a partition of an earlier version."""
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
    return _checked(path, parts, fields)


def _checked(path: Path, parts: np.ndarray, fields: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    for name, kind in _FIELDS.items():
        if type(fields[name]) is not kind:  # a bool is an int to isinstance
            raise _damaged(path, f"{name} must be {kind.__name__}, got {fields[name]!r}")
    servers = fields["num_parts"]
    if servers < 1:
        raise _damaged(path, f"num_parts must be ≥ 1, got {servers}")
    if parts.dtype != np.int32 or parts.ndim != 1:
        raise _damaged(path, f"parts must be int32 [V], got {parts.dtype} {list(parts.shape)}")
    if len(parts) and not (parts.min() >= 0 and parts.max() < servers):
        raise _damaged(path, f"servers must be in 0 … {servers - 1}, got {parts.min()} … {parts.max()}")
    return parts, fields


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged ({why}): make the partition again")
