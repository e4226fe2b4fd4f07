"""Folders of arrays: `.npy` files that memory-map, and a manifest (`dorylax.graph.manifest`). Data sets, partitions, shards.

`write_arrays`, the only writer, fills a temporary folder next to the target, writes the manifest last, and renames the
folder. Readers see the old folder or the whole new one. The next write of a target removes the leftovers of a killed
process. `stored.open_arrays` reads them.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax.errors import named
from dorylax.graph.array_names import CLASS_NAMES
from dorylax.graph.arrays import shown_names, stored_names
from dorylax.graph.manifest import MANIFEST, OLD_PARTITION, ArrayEntry, Manifest, file_name, is_of_shards
from dorylax.graph.mapped import release
from dorylax.graph.stored import PIECE, open_arrays
from dorylax.graph.validate import GraphError, check_printable
from dorylax.store.durable import make_folder, write_folder
from dorylax.version import __version__


def check_target(path: Path) -> None:
    """Pass if a folder of arrays may be written to a path.

    Raises a GraphError for a file, the current folder, or a folder with files that dorylax did not write.
    """
    if path.suffix == ".npz":
        raise GraphError(f"{path} ends in .npz, and data sets are folders: give {path.with_suffix('')}")
    if path.exists() and path.resolve() == Path.cwd():
        raise GraphError(f"{path} is the current folder: choose a new folder")
    try:
        found = sorted(one.name for one in path.iterdir())
    except FileNotFoundError:
        if path.is_symlink():
            raise GraphError(f"{path} is a broken symbolic link: remove it, or choose another name") from None
        return
    except NotADirectoryError:
        raise GraphError(f"{path} is a file: choose the name of a new folder") from None
    try:
        manifest = Manifest.from_json((path / MANIFEST).read_bytes())
        ours = {MANIFEST, *map(file_name, manifest.arrays)}
    except (OSError, GraphError):
        ours = set(OLD_PARTITION) if OLD_PARTITION[0] in found else set()
    if foreign := [name for name in found if name not in ours and not (ours and is_of_shards(name))]:
        raise GraphError(
            f"{path} is a folder that holds {foreign[0]}, which dorylax did not write: choose a new folder"
        )


def write_arrays(
    path: Path, fill: Callable[[FolderWriter], object], *, provenance: Mapping[str, Any] | None = None
) -> None:
    """Write a folder of arrays, or replace one.

    Args:
        path: Path of the folder; missing parents are made.
        fill: Adds the arrays. Other files that it writes to `FolderWriter.folder` become part of the folder.
        provenance: Command and sources, for the manifest.

    Raises:
        GraphError: As `check_target`, or two arrays have one name.
        OSError: The file system refuses (a full disk, say); the error names `path`, or the file in it.
        ValueError: An array is incomplete. If `fill` raises, the old folder stays.
    """
    check_target(path)
    if not path.parent.exists():
        make_folder(path.parent)

    def write(folder: Path) -> None:
        with contextlib.closing(FolderWriter(folder)) as writer:
            fill(writer)
            text = writer.finish({"dorylax": __version__, **(provenance or {})}).to_json()
        check_target(path)  # again: a large folder takes hours
        (folder / MANIFEST).write_text(text, encoding="utf-8")

    write_folder(Path(os.path.realpath(path)), write)


def convert(old: Path, new: Path, *, verify: bool = True) -> None:
    """Copy the arrays of a folder or an `.npz` archive to a new folder.

    Raises:
        GraphError: `old` is damaged or something else, or `new` is not free.
        RunError: `old` has changed meanwhile.
        OSError: A file cannot be read or written.
    """
    with open_arrays(old, verify=verify) as stored:
        stored.require("indptr", "indices")

        def fill(folder: FolderWriter) -> None:
            for name in stored.names:
                array = stored.fetch(name)
                folder.add(name, array)
                release(array)
            stored.check_unchanged()

        write_arrays(new, fill, provenance={"command": "dorylax convert", "sources": [str(old)]})


def size_on_disk(folder: Path) -> int:
    """Return the size of all files in a folder in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@final
class FolderWriter:
    """A folder of arrays that is being written; `folder` is its path, at first empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, ArrayWriter] = {}
        self._values: dict[str, Any] = {}
        self._class_names: list[Any] | None = None

    def add(self, name: str, array: np.ndarray) -> None:
        """Write a whole array. Single values and names of classes go to the manifest. Raises as `open`."""
        if array.ndim == 0:
            self._check_new(name)
            self._values[name] = array.item()
        elif name == CLASS_NAMES:
            self._class_names = shown_names(stored_names(name, array)).tolist()
        else:
            column = self.open(name, array.dtype, array.shape)
            column.write(array)
            column.close()

    def open(self, name: str, dtype: np.dtype, shape: tuple[int | None, ...]) -> ArrayWriter:
        """Begin an array; the first axis of its shape is None if its length is not known yet. Several may be open at a time.

        Raises a GraphError if there is an array of this name, or its elements are Python objects.
        """
        self._check_new(name)
        if dtype.hasobject:
            raise GraphError(f"array {name} holds Python objects: save numbers")
        array = self._arrays[name] = ArrayWriter(self.folder / file_name(name), name, dtype, shape)
        return array

    def drop(self, name: str) -> None:
        """Remove an array."""
        array = self._arrays.pop(name)
        array.close()
        array.path.unlink()

    def finish(self, provenance: Mapping[str, Any]) -> Manifest:
        """Complete all arrays and return their manifest. Raises a ValueError if one is incomplete."""
        return Manifest(
            arrays={name: array.finish() for name, array in self._arrays.items()},
            values=self._values,
            class_names=self._class_names,
            provenance=dict(provenance),
        )

    def close(self) -> None:
        """Close all files."""
        for array in self._arrays.values():
            array.close()

    def _check_new(self, name: str) -> None:
        check_printable("the name of the array", name)
        if name in self._arrays or name in self._values:
            raise GraphError(f"there are two arrays {name}: rename one of them")


@final
class ArrayWriter:
    """One array of a folder, which takes its rows in order."""

    def __init__(self, path: Path, name: str, dtype: np.dtype, shape: tuple[int | None, ...]) -> None:
        self.path, self._name, self._dtype = path, name, dtype
        self._rows, self._row = shape[0], tuple(size for size in shape[1:] if size is not None)
        self._size = self._crc = 0
        with named(path):
            self._file = path.open("wb")
            self._file.write(self._header(0 if self._rows is None else self._rows))

    def write(self, rows: np.ndarray) -> None:
        """Add rows `[n, …]`. Raises a ValueError if their type or shape differs, or they are too many."""
        if rows.dtype != self._dtype or rows.shape[1:] != self._row or rows.ndim != 1 + len(self._row):
            raise ValueError(f"{self._name} has rows of {self._dtype} {list(self._row)}, got {rows.dtype} {rows.shape}")
        left = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        self._size += len(left)
        if self._rows is not None and self._size > self._rows * self._row_bytes:
            raise ValueError(f"{self._name} has {self._rows:,} rows, got more")
        with named(self.path):
            while left:
                self._crc = zlib.crc32(left[:PIECE], self._crc)  # while the piece is in a cache
                self._file.write(left[:PIECE])
                left = left[PIECE:]

    def finish(self) -> ArrayEntry:
        """Complete the file. Raises a ValueError if rows are missing."""
        rows = self._size // self._row_bytes if self._rows is None and self._row_bytes else self._rows or 0
        if self._size != rows * self._row_bytes:
            raise ValueError(f"{self._name} has {self._size:,} bytes, expected {rows:,} rows")
        if self._rows is None:
            with named(self.path):
                self._file.seek(0)
                self._file.write(self._header(rows))
        self.close()
        return ArrayEntry(shape=(rows, *self._row), dtype=self._dtype.str, crc32=f"{self._crc:08x}")

    def close(self) -> None:
        """Close the file."""
        with named(self.path):
            self._file.close()

    @property
    def _row_bytes(self) -> int:
        return math.prod(self._row) * self._dtype.itemsize

    def _header(self, rows: int) -> bytes:
        header = io.BytesIO()
        kind = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(header, kind | {"shape": (rows, *self._row)})
        return header.getvalue()
