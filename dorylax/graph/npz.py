"""The npz layout of graphs and data sets: NumPy archives that load without pickle.

Arrays:
    indptr: int64 `[V+1]`, indices: int32 `[E]`. Compressed rows by *source*: row u lists the targets of u's out-edges.
        An undirected graph stores both directions.
    edge_<name>: values of the edges, `[E, …]` in order of `indices`: `Graph.edge_data`; any number of them.
    edge_ids: int32 `[E]`, the id of each edge in order of `indices`, all different; optional: otherwise its place there.
    features: `[V, F]`, or compressed rows `features_indptr`, `features_indices`, `features_data`, `features_shape`.
    labels: int `[V]`, -1 where unlabelled, or `[V, C]` of zeros and ones (multi-label); floating, and without
        num_classes, targets `[V]` or `[V, T]`.
    directed: false where every edge comes with its reverse, which saves sorting; optional.
    self_loops: "none", "some" or "all" vertices have an edge to themselves, which saves guessing what a run will need;
        optional.
    num_classes: C; optional.
    multilabel: whether labels `[V, C]` are any number of classes; optional where a vertex has more than one.
    vertex_<name>: `[V, …]`, a further input of the model by that name; any number of them.
    train_mask, val_mask, test_mask: bool `[V]`; optional.
    name: optional.

Reading here means fetching arrays and saying which are missing; what they hold is checked by who asks for them. Arrays
are written uncompressed, each on a multiple of 64 bytes, so that large ones are memory-mapped when they are read: they
take memory only where and while they are used, and XLA reads them in place (`dorylax.aligned`).
"""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, final

import numpy as np

from dorylax.durable import write_file
from dorylax.graph.sparse_rows import dense_rows
from dorylax.graph.validate import GraphError
from dorylax.near_matches import close

ALIGNMENT = 64
_LARGE = 1 << 22  # bytes; smaller arrays are read
_LOCAL_HEADER = 30  # bytes of a zip member's header before its name
_ZIP64_FIELD = 20  # bytes of the field that zipfile adds to it
_PADDING_FIELD = 0xD935  # a number that zip tools use for padding and skip

VERTEX_PREFIX = "vertex_"
"""Of the names of further inputs per vertex."""

_SINGLE = ("directed", "self_loops", "multilabel", "name")
_SPARSE = ("features_indptr", "features_indices", "features_data", "features_shape")
MASKS = ("train_mask", "val_mask", "test_mask")
_NAMES = ("indptr", "indices", "features", *_SPARSE, "labels", "num_classes", *_SINGLE, *MASKS)
_OF_OTHERS = ("edge_", "num_self_loops")  # beginnings of names that are near to ours and mean something else
# What zipfile and NumPy raise on damaged bytes: of the archive, a member, an array's header (a shape too large, too).
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
)


@final
class Archive:
    """An open archive, whose arrays are read when they are asked for."""

    def __init__(self, file: np.lib.npyio.NpzFile, path: str | os.PathLike[str]) -> None:
        self._file = file
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._file.files

    @property
    def names(self) -> tuple[str, ...]:
        """What arrays there are."""
        return tuple(self._file.files)

    def require(self, *names: str) -> None:
        """Raises a `GraphError` that says which of `names` are not there."""
        absent = [name for name in names if name not in self]
        if absent:
            raise GraphError(f"has no array {' and no '.join(absent)}; it has {', '.join(self.names) or 'none'}")

    def fetch(self, name: str) -> np.ndarray:
        """Reads one array, or memory-maps it (read-only) where it is large and stored for it.

        Raises:
            GraphError: it is not there, is damaged, holds Python objects, or several values where one is meant.
        """
        self.require(name)
        try:
            array = self._mapped(name)
            if array is None:
                array = self._file[name]
        except _DAMAGE as error:
            reason = "it holds Python objects: save numbers" if "Object arrays" in str(error) else error
            raise GraphError(f"array {name} cannot be read ({reason})") from error
        if name in _SINGLE and array.ndim:
            raise GraphError(f"{name} must be a single value, got {array.dtype} {list(array.shape)}")
        return array

    def maps(self, name: str) -> bool:
        """Whether `fetch` memory-maps an array; nothing of it is read."""
        try:
            return name in self and self._mapped(name) is not None
        except _DAMAGE:
            return False  # `fetch` says what is wrong

    def _mapped(self, name: str) -> np.ndarray | None:
        """The array without reading it, as `write_npz` stores large ones; None otherwise."""
        archive = self._file.zip
        if archive is None:  # closed: reading will say so
            return None
        member = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size < _LARGE:
            return None
        with open(self._path, "rb") as stream:
            stream.seek(member.header_offset)
            local = stream.read(_LOCAL_HEADER)
            name_length, extra_length = struct.unpack("<HH", local[-4:])
            start = member.header_offset + _LOCAL_HEADER + name_length + extra_length
            stream.seek(start)
            if start % ALIGNMENT or np.lib.format.read_magic(stream) != (1, 0):
                return None
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
            if by_columns or dtype.hasobject:
                return None
            return np.memmap(self._path, dtype, "r", stream.tell(), shape)

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of one array, of which nothing else is read.

        Raises:
            GraphError: it is not there, or its header is damaged.
        """
        self.require(name)
        archive = self._file.zip
        if archive is None:
            raise GraphError(f"array {name} cannot be read (the archive is closed)")
        try:
            with archive.open(f"{name}.npy") as member:
                version = np.lib.format.read_magic(member)
                one = version == (1, 0)
                read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
        except (*_DAMAGE, KeyError) as error:
            raise GraphError(f"array {name} cannot be read ({error})") from error
        return shape, dtype


@contextmanager
def open_npz(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """The archive at `path`; a `GraphError` raised inside gets the path in front.

    Raises:
        FileNotFoundError: there is no such file.
        GraphError: it is not an npz archive.
    """
    with open(path, "rb") as stream:  # opened here, because np.load leaves a file that is no archive open
        try:
            file = np.load(stream, allow_pickle=False)
        except _DAMAGE as error:
            reason = "it is another kind of file" if "pickle" in str(error) else error
            raise GraphError(f"{os.fspath(path)}: not an npz archive ({reason}): np.savez writes one") from error
        if isinstance(file, np.ndarray):
            raise GraphError(f"{os.fspath(path)}: not an npz archive but one array, as np.save writes: use np.savez")
        with file:
            try:
                yield Archive(file, path)
            except GraphError as error:
                raise GraphError(f"{os.fspath(path)}: {error}") from error


def feature_names(archive: Archive) -> tuple[str, ...]:
    """Names of the arrays that hold the features: one, or those of compressed rows where there is any of them."""
    return _SPARSE if any(name in archive for name in _SPARSE) else ("features",)


def read_features(archive: Archive) -> np.ndarray:
    """The features `[V, F]`, dense; compressed ones come out as float32."""
    if feature_names(archive) != _SPARSE:
        return archive.fetch("features")
    if "features" in archive:
        raise GraphError("has features and, in compressed rows, features_data: leave out one of them")
    archive.require(*_SPARSE)
    indptr, indices, data, shape = (archive.fetch(name) for name in _SPARSE)
    return dense_rows(indptr, indices, data, shape)


def check_names(archive: Archive) -> None:
    """Refuses arrays that are named almost as those of the layout: not to be read is not what they are there for.

    Raises:
        GraphError: there is one; says what it may be meant for.
    """
    for name in archive.names:
        meant = close(name, _NAMES, cutoff=0.75)
        if name not in _NAMES and meant and not name.startswith((VERTEX_PREFIX, *_OF_OTHERS)):
            raise GraphError(f"has an array {name}, which is not read: name it {meant[0]}, or leave it out")


def vertex_names(archive: Archive) -> dict[str, str]:
    """Of further inputs per vertex: their name → that of the array that holds them."""
    return {name.removeprefix(VERTEX_PREFIX): name for name in archive.names if name.startswith(VERTEX_PREFIX)}


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an archive so that readers see the old file or the whole new one, never a part."""

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                member = _aligned_member(f"{name}.npy", file.tell())
                with archive.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, np.asarray(array, order="C"), (1, 0), allow_pickle=False)

    write_file(Path(path), write)


def _aligned_member(name: str, position: int) -> zipfile.ZipInfo:
    """A member whose bytes begin on a multiple of `ALIGNMENT`, where its header begins at `position`.

    The room before them is an extra field of the header that no reader knows (APPNOTE.TXT 4.5.1). NumPy pads its own
    header to a multiple of 64 bytes.
    """
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))  # the same arrays give the same file
    end = position + _LOCAL_HEADER + len(name.encode()) + _ZIP64_FIELD + 4
    padding = -end % ALIGNMENT
    member.extra = struct.pack("<HH", _PADDING_FIELD, padding) + bytes(padding)
    return member
