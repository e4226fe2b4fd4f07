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
    class_names: `[C]` UTF-8 bytes, names of the classes; optional.
    original_ids: `[V]` integers or UTF-8 bytes, names of the vertices, in order of the user's numbers; optional.
    multilabel: whether labels `[V, C]` are any number of classes; optional where a vertex has more than one.
    vertex_<name>: `[V, …]`, a further input of the model by that name; any number of them.
    vertex_ids-1: int32 `[V]`, the user's number of the vertex in each row, where rows are in another order than the user's
        (`dorylax reorder`); optional. Neighbours are rows, and everything of vertices is in order of rows. Without edge_ids
        the edges' ids are 0 … E-1 by (source, target) in the user's numbers; edge_<name> needs edge_ids. The number is a
        version; what knows none refuses it, because no input can have such a name.
    train_mask, val_mask, test_mask: bool `[V]`, or `[V, K]` or `[K, V]` for K splits; optional.
    name: optional.

Reading here means fetching arrays and saying which are missing; what they hold is checked by who asks for them. Arrays
are written uncompressed, each on a multiple of 64 bytes, so that large ones are memory-mapped when they are read: they
take memory only where and while they are used, and XLA reads them in place (`dorylax.aligned`). A last member, no array,
lists the checksums of all others (`dorylax.graph.checksums`).
"""

from __future__ import annotations

import logging
import os
import struct
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, final

import numpy as np

from dorylax.graph import checksums, verdicts, zip_arrays
from dorylax.graph.mapped import check_state, map_file
from dorylax.graph.sparse_rows import dense_rows
from dorylax.graph.stream.archive_writer import ALIGNMENT, new_archive
from dorylax.graph.stream.whole_crc import whole_crc
from dorylax.graph.validate import GraphError, as_integers, check_permutation, check_printable
from dorylax.graph.zip_arrays import header_of, members, read_bytes, start_of
from dorylax.near_matches import close

_LOG = logging.getLogger(__name__)

_LARGE = 1 << 22  # bytes; smaller arrays are read
_ONE_ARRAY = np.lib.format.MAGIC_PREFIX

VERTEX_PREFIX = "vertex_"
"""Of the names of further inputs per vertex."""

ORDER = "vertex_ids-1"
"""Of the user's numbers of the vertices, where rows are in another order."""
_ORDERS = "vertex_ids-"  # of any version

ORIGINAL_IDS = "original_ids"
"""Names of the vertices, in order of the user's numbers whatever the order of rows."""

CLASS_NAMES = "class_names"
"""Names of the classes."""

_SINGLE = ("directed", "self_loops", "multilabel", "name")
SPARSE = ("features_indptr", "features_indices", "features_data", "features_shape")
"""Features in compressed rows."""
MASKS = ("train_mask", "val_mask", "test_mask")
_NAMES = (
    *("indptr", "indices", "features", *SPARSE, "labels", "num_classes", *_SINGLE, *MASKS),
    *(ORIGINAL_IDS, CLASS_NAMES),
)
_OF_OTHERS = ("edge_", "num_self_loops")  # beginnings of names that are near to ours and mean something else
NPY_DAMAGE = (
    EOFError,
    MemoryError,
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
)
"""What NumPy raises where bytes are no array: its header may be anything, or its shape too large."""

# What zipfile raises on damaged bytes besides.
_DAMAGE = (*NPY_DAMAGE, zipfile.BadZipFile, zlib.error, RuntimeError)


@final
class Archive:
    """An open archive, which reads arrays on demand."""

    def __init__(self, file: zipfile.ZipFile, stream: BinaryIO, path: str | os.PathLike[str], *, verify: bool) -> None:
        """Reads the list of members.

        Raises:
            zipfile.BadZipFile, ValueError, …: The members contradict each other or the list of checksums.
        """
        self._file, self._stream, self._path = file, stream, path
        self._opened = verdicts.state_of(stream.fileno())
        self._held = 0  # bytes of arrays that were read, and not mapped
        self._members = {name.removesuffix(".npy"): info for name, info in members(file, stream).items()}
        listed = self._members.pop(checksums.MEMBER, None)
        self._sums: Mapping[str, checksums.Checksums] | None = None
        self._verify = verify
        if verify and listed is not None:
            self._sums = checksums.from_json(read_bytes(file, listed))
        for name in self._members:
            check_printable("the name of the array", name)
        for name in self._sums or ():
            if name not in self._members:
                raise ValueError(f"array {name} is missing, which {checksums.MEMBER} lists")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> tuple[str, ...]:
        """What arrays there are."""
        return tuple(self._members)

    def is_verified(self, *names: str) -> bool:
        """Whether arrays are, once fetched, as dorylax wrote them, so that what the archive says of its graph is true.

        Other programs can replace one and leave the list of checksums as it was: it then differs from what zip lists.
        """
        sums = self._sums or {}
        return all(name in sums and whole_crc(sums[name]) == self._members[name].CRC for name in names)

    def require(self, *names: str) -> None:
        """Raises a `GraphError` that says which of `names` are not there."""
        absent = [name for name in names if name not in self]
        if (absent or "indptr" in names) and {"format", "shape", "data"} <= self._members.keys():
            raise GraphError(
                "is a matrix of scipy.sparse.save_npz: Graph.from_scipy(scipy.sparse.load_npz(path)) takes it, and so does "
                "dorylax import"
            )
        if absent:
            raise GraphError(f"has no array {' and no '.join(absent)}; it has {', '.join(self.names) or 'none'}")

    def fetch(self, name: str) -> np.ndarray:
        """Reads one array, or memory-maps it (read-only) where it is large and stored for it.

        What is read is checked on the way, by the CRC-32 of zip; what is mapped is compared with its checksums once
        (`dorylax.graph.checksums`, `dorylax.graph.verdicts`), unless the archive was opened without.

        Raises:
            GraphError: it is not there, is damaged, holds Python objects, does not fit in memory, or holds several values
                where one is meant.
        """
        self.require(name)
        try:
            place = self._place(name)
            if place is not None:
                self._check(name, place.first)
                array = map_file(self._stream, place.dtype, place.shape, place.elements)
            else:
                info = self._members[name]
                array = zip_arrays.read(self._file, info, self._held)
                self._held += info.file_size
        except GraphError as error:
            raise GraphError(f"array {name} {error}") from error
        except _DAMAGE as error:
            reason = "it holds Python objects: save numbers" if "Object arrays" in str(error) else error
            raise GraphError(f"array {name} cannot be read ({reason})") from error
        if name in _SINGLE and array.ndim:
            raise GraphError(f"{name} must be a single value, got {array.dtype} {list(array.shape)}")
        return array

    def check_unchanged(self) -> None:
        """Compare the present state of the file with that at opening.

        Raises:
            ChangedFileError: The states differ.
        """
        check_state(self._path, self._opened)

    def maps(self, name: str) -> bool:
        """Whether `fetch` memory-maps an array; nothing of it is read."""
        try:
            return name in self and self._place(name) is not None
        except _DAMAGE:
            return False  # `fetch` says what is wrong

    def place(self, name: str) -> Place | None:
        """Where an array lies whose rows can be read in parts, once its bytes were compared with their checksums.

        Returns:
            The place; None where the array is compressed or in Fortran's order, and is to be fetched.

        Raises:
            GraphError: it is not there, is damaged, or holds Python objects.
        """
        self.require(name)
        try:
            place = self._stored(name)
            if place is not None:
                self._check(name, place.first)
        except GraphError as error:
            raise GraphError(f"array {name} {error}") from error
        except _DAMAGE as error:
            raise GraphError(f"array {name} cannot be read ({error})") from error
        return place

    @property
    def descriptor(self) -> int:
        """Of the open file."""
        return self._stream.fileno()

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of one array, of which nothing else is read.

        Raises:
            GraphError: it is not there, or its header is damaged.
        """
        self.require(name)
        try:
            found = header_of(self._file, self._members[name])
        except _DAMAGE as error:
            raise GraphError(f"array {name} cannot be read ({error})") from error
        return found.shape, found.dtype

    def _place(self, name: str) -> Place | None:
        """Where an array lies that is stored as `write_npz` stores large ones; None for others, which are read."""
        if self._members[name].file_size < _LARGE:
            return None
        place = self._stored(name)
        return None if place is None or place.first % ALIGNMENT else place

    def _stored(self, name: str) -> Place | None:
        """Where an array lies row by row, uncompressed; None where it does not."""
        info = self._members[name]
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        first, header = start_of(self._stream, info), header_of(self._file, info)
        if header.version != (1, 0) or header.by_columns or header.dtype.hasobject:
            return None
        return Place(first, first + header.size, header.dtype, header.shape)

    def _check(self, name: str, first: int) -> None:
        """Compares the bytes of an array that is going to be mapped with their checksums, once.

        Raises:
            GraphError: they are others; says which.
        """
        if not self._verify:
            return
        info = self._members[name]
        sums = None if self._sums is None else self._sums.get(name)
        # What other programs wrote, and dorylax before it kept checksums, is one block: zip's own.
        sums = sums or checksums.Checksums(info.file_size, (info.CRC,), info.file_size)
        if sums.size != info.file_size:
            raise ValueError(f"its checksums are of {sums.size:,} bytes, the archive has {info.file_size:,}")
        what = f"{name} at {first} {sums.digest}"
        if verdicts.is_known(self._opened, what):
            return
        begun, begin = time.time(), time.perf_counter()
        wrong = checksums.wrong_blocks(self._stream, first, sums)
        if wrong:
            raise GraphError(
                f"is damaged: {checksums.told(wrong, sums, first)}: restore the file from a copy, or make it again; "
                "--no-verify (in Python verify=False) takes it as it is"
            )
        _LOG.info("%s: checked %s in %.2f s", os.fspath(self._path), name, time.perf_counter() - begin)
        if verdicts.state_of(self._stream.fileno()) == self._opened:
            verdicts.remember(self._opened, what, begun, self._path)


class Place(NamedTuple):
    """Where an array lies in the file.

    Attributes:
        first: the byte where its header begins.
        elements: the byte where its elements begin.
        dtype, shape: of the array.
    """

    first: int
    elements: int
    dtype: np.dtype
    shape: tuple[int, ...]


@contextmanager
def open_npz(path: str | os.PathLike[str], *, verify: bool = True) -> Iterator[Archive]:
    """The archive at `path`; a `GraphError` raised inside gets the path in front.

    Args:
        path: the file.
        verify: compare what is memory-mapped with its checksums, once.

    Raises:
        FileNotFoundError: there is no such file.
        GraphError: it is not an npz archive, or is damaged.
    """
    with open(path, "rb") as stream:
        if stream.read(len(_ONE_ARRAY)) == _ONE_ARRAY:
            raise GraphError(f"{os.fspath(path)}: not an npz archive but one array, as np.save writes: use np.savez")
        try:
            file = zipfile.ZipFile(stream)
        except _DAMAGE as error:
            reason = "it is another kind of file, or cut off" if isinstance(error, zipfile.BadZipFile) else error
            raise GraphError(f"{os.fspath(path)}: not an npz archive ({reason}): np.savez writes one") from error
        with file:
            try:
                archive = Archive(file, stream, path, verify=verify)
            except _DAMAGE as error:
                raise GraphError(
                    f"{os.fspath(path)}: is damaged ({error}): restore it from a copy, or make it again"
                ) from error
            try:
                yield archive
            except GraphError as error:
                raise GraphError(f"{os.fspath(path)}: {error}") from error


def feature_names(archive: Archive) -> tuple[str, ...]:
    """Names of the arrays that hold the features: one, or those of compressed rows where there is any of them."""
    return SPARSE if any(name in archive for name in SPARSE) else ("features",)


def read_features(archive: Archive) -> np.ndarray:
    """The features `[V, F]`, dense; compressed ones come out as float32."""
    if feature_names(archive) != SPARSE:
        return archive.fetch("features")
    if "features" in archive:
        raise GraphError("has features and, in compressed rows, features_data: leave out one of them")
    archive.require(*SPARSE)
    indptr, indices, data, shape = (archive.fetch(name) for name in SPARSE)
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
    names = (name for name in archive.names if name.startswith(VERTEX_PREFIX) and not name.startswith(_ORDERS))
    return {name.removeprefix(VERTEX_PREFIX): name for name in names}


def read_order(archive: Archive, num_vertices: int) -> np.ndarray | None:
    """The user's number of the vertex in each row, int32 `[V]`; None where rows are in the user's order.

    Raises:
        GraphError: they are no permutation, or of a version that is not known here.
    """
    others = [name for name in archive.names if name.startswith(_ORDERS) and name != ORDER]
    if others:
        raise GraphError(
            f"is in a memory order of another version ({others[0]}), this dorylax reads {ORDER}: update it"
        )
    if ORDER not in archive:
        return None
    ids = as_integers(ORDER, archive.fetch(ORDER))
    check_permutation(ORDER, ids, num_vertices)
    return ids.astype(np.int32, copy=False)


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an archive so that readers see the old file or the whole new one, never a part."""
    with new_archive(Path(path)) as archive:
        for name, array in arrays.items():
            archive.add(name, np.asarray(array))
