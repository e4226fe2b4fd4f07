"""Checkpoints of schemas 1 to 3 (before December 2026): arrays by Orbax, a record beside them, and hosts' `.npz` files.

Only such a checkpoint imports Orbax, which the extra `old-checkpoints` installs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dorylax.store.base import Content, Storage

_Key = TypeVar("_Key", bound=Hashable)
_HOSTS = "hosts/"
_PACKED, _BYTES = "packed", "bytes"  # group and name of the array that holds all small ones


def read(
    storage: Storage, folder: str, files: Mapping[str, Content]
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Read the arrays and the content of record.json from the folder of a checkpoint; the files of hosts stay unread.

    Raises:
        OSError: A file cannot be read, or has other content than in `files`.
        ImportError: Orbax is not installed.
        ValueError, KeyError, TypeError: The content is damaged.
    """
    own = {name: content for name, content in files.items() if not name.startswith(_HOSTS)}
    with storage.verified(folder, own) as here:
        record = json.loads((here / "record.json").read_bytes())
        return _arrays(here / "arrays", record["arrays"]), record


def npz_arrays(path: Path, index: Mapping[_Key, Mapping[str, Any]]) -> dict[_Key, np.ndarray]:
    """Read a host's file, by an index with the `shape` and `dtype` of each array."""
    with np.load(path) as archive:
        return {name: _as_written(archive[str(name)], entry) for name, entry in index.items()}


def _arrays(folder: Path, index: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, np.ndarray]]:
    try:
        import orbax.checkpoint as ocp  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError(f'it is of an older version: pip install "dorylax[old-checkpoints]" ({error})') from None
    names = {
        group: [name for name, entry in of.items() if 0 not in entry["shape"] and "offset" not in entry]
        for group, of in index.items()
    }
    if any("offset" in entry for of in index.values() for entry in of.values()):
        names[_PACKED] = [_BYTES]
    wanted = {group: {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in of} for group, of in names.items()}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        stored = checkpointer.restore(folder, args=ocp.args.PyTreeRestore(restore_args=wanted))

    def array(group: str, name: str, entry: Mapping[str, Any]) -> np.ndarray:
        if 0 in entry["shape"]:
            return np.zeros(entry["shape"], entry["dtype"])
        if "offset" not in entry:
            return np.asarray(stored[group][name])
        return _as_written(np.asarray(stored[_PACKED][_BYTES])[entry["offset"] :], entry)

    return {group: {name: array(group, name, entry) for name, entry in of.items()} for group, of in index.items()}


def _as_written(stored: np.ndarray, entry: Mapping[str, Any]) -> np.ndarray:
    """Copy an array from the start of its bytes, or from an array of the right dtype."""
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    found = stored
    if stored.dtype != dtype or stored.shape != shape:
        found = stored[: dtype.itemsize * math.prod(shape)].copy().view(dtype)
    return np.array(found.reshape(shape))
