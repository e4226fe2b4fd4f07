"""Numbers for vertices that users call by any integers or by names.

Integers are numbered in ascending order, so what is 0 … V-1 already stays as it is; names in the order in which they first
occur, the source of an edge before its target. All of them are found in a first pass over the edges, by sorting on disk, and
looked up in a second one, in a table of what is sorted (integers, or hashes of names) and the number of each. Names are
compared by 128 bits of hashes, 64 of which sort them: if two names have the same 64, others are taken.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.durable import named, write_json
from dorylax.errors import DorylaxError
from dorylax.graph.stream.external_sort import ExternalSort
from dorylax.graph.stream.lines import Names
from dorylax.graph.stream.readers.base import Chunk
from dorylax.graph.validate import MAX_VERTICES, GraphError

_OCCURRENCE = np.dtype([("place", "<i8"), ("check", "<i8")])
_LONGEST = 1024  # bytes of a name: the archive holds every name as long as the longest
_DONE = "ids.json"


class HashCollisionError(DorylaxError, ValueError):
    """Two names have the same hash of 64 bits; another seed parts them."""


class Found(NamedTuple):
    """Which ids there are.

    Attributes:
        num_ids: V.
        longest: bytes of the longest name, at least 1; 0 of integers.
    """

    num_ids: int
    longest: int


def find_ids(folder: Path, chunks: Callable[[Any], Iterator[tuple[Chunk, Any]]], *, names: bool, memory: int) -> Found:
    """Finds all ids, and writes the table, where that has not been done.

    Args:
        folder: of the table; it is there.
        chunks: gives the edges, each chunk with its state, from behind the chunk of a state.
        names: whether ids are names.
        memory: bytes that may be taken.

    Raises:
        HashCollisionError: see there.
        GraphError: there are more vertices than int32 numbers, or a name is too long; or as reading raises.
        OSError: the file system refuses.
    """
    done = folder / _DONE
    if done.is_file():
        return Found(**json.loads(done.read_text()))
    dtype = _OCCURRENCE if names else None
    longest = 0
    with ExternalSort(folder / "found", dtype, memory=memory, unique="check" if names else True) as sort:
        place = 0
        if sort.state is not None:
            place, longest = sort.state["place"], sort.state["longest"]
        for chunk, state in chunks(None if sort.state is None else sort.state["edges"]):
            if names:
                table = _both_ends(chunk)
                longest = max(longest, _longest_of(table, chunk))
                occurrences = np.empty(len(table), _OCCURRENCE)
                occurrences["place"] = np.arange(place, place + len(table))
                occurrences["check"] = table[:, 1]
                place += len(table)
                sort.add(table[:, 0], occurrences, {"edges": state, "place": place, "longest": longest})
            else:
                both = np.concatenate([np.asarray(chunk.sources), np.asarray(chunk.targets)])
                sort.add(both, None, {"edges": state, "place": 0, "longest": 0})
        count = _write_by_key(folder, sort, names=names)
        if count > MAX_VERTICES:
            raise GraphError(f"there are {count:,} vertices, and at most {MAX_VERTICES:,} can be numbered (int32)")
        if names:
            _write_numbers(folder, count, memory)
        found = Found(count, max(1, longest) if names else 0)
        write_json(done, found._asdict())
        sort.remove()
    return found


@final
class IdTable:
    """Looks ids up.

    Args:
        folder: where `find_ids` has written the table.
        memory: bytes that may be taken; a table that takes more is read anew for each chunk.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self._keys, self._numbers = folder / "keys", folder / "numbers"
        self._count = self._keys.stat().st_size // 8
        self._block = max(1024, memory // 12)
        self._whole = self._read(0) if self._count <= self._block else None

    def numbers(self, chunk: Chunk) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
        """The numbers of sources and targets."""
        if isinstance(chunk.sources, Names):
            ids = _both_ends(chunk)[:, 0]
            found = self._look_up(ids)
            return found[::2], found[1::2]
        found = self._look_up(np.concatenate([chunk.sources, np.asarray(chunk.targets)]))
        return found[: chunk.size], found[chunk.size :]

    def _look_up(self, ids: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
        distinct, places = np.unique(ids, return_inverse=True)
        if self._whole is not None:
            keys, numbers = self._whole
            return numbers[np.searchsorted(keys, distinct)][places].astype(np.int64)
        found = np.empty(len(distinct), np.int64)
        done = 0
        for first in range(0, self._count, self._block):
            keys, numbers = self._read(first)
            end = int(np.searchsorted(distinct, keys[-1], side="right"))
            found[done:end] = numbers[np.searchsorted(keys, distinct[done:end])]
            done = end
        return found[places]

    def _read(self, first: int) -> tuple[Int64[np.ndarray, " b"], Int32[np.ndarray, " b"]]:
        """A block of the table."""
        keys = np.fromfile(self._keys, np.int64, self._block, offset=8 * first)
        if not self._numbers.is_file():  # integers, in order
            return keys, np.arange(first, first + len(keys), dtype=np.int32)
        return keys, np.fromfile(self._numbers, np.int32, self._block, offset=4 * first)


@final
class NameList:
    """The names of vertices in the order of their numbers, which is that of the edges.

    Args:
        folder: where the list is.
        longest: bytes of the longest name.
        count: names that are in it already; what an earlier process has added to them is dropped.
    """

    def __init__(self, folder: Path, longest: int, count: int) -> None:
        self._path, self._width, self.count = folder / "names", longest, count
        with named(self._path), self._path.open("ab") as file:
            file.truncate(count * longest)

    def add(self, chunk: Chunk, sources: Int64[np.ndarray, " n"], targets: Int64[np.ndarray, " n"]) -> None:
        """Takes those that have not occurred before."""
        assert isinstance(chunk.sources, Names)
        assert isinstance(chunk.targets, Names)
        both = np.stack([sources, targets], axis=1).reshape(-1)
        highest = np.maximum.accumulate(np.concatenate([[self.count - 1], both]))
        new = np.flatnonzero(both > highest[:-1])
        table = _both_ends(chunk)
        texts = (chunk.sources.text, chunk.targets.text)
        names = np.array(
            [texts[k % 2][first : first + size] for k, (first, size) in zip(new, table[new, 2:], strict=True)],
            f"S{self._width}",
        )
        with named(self._path), self._path.open("ab") as file:
            file.write(names.tobytes())
        self.count += len(new)


def _both_ends(chunk: Chunk) -> Int64[np.ndarray, "m 4"]:
    """The names of all ends in the order of edges."""
    assert isinstance(chunk.sources, Names)
    assert isinstance(chunk.targets, Names)
    return np.stack([chunk.sources.table, chunk.targets.table], axis=1).reshape(-1, 4)


def _longest_of(table: Int64[np.ndarray, "m 4"], chunk: Chunk) -> int:
    longest = int(table[:, 3].max(initial=0))
    if longest > _LONGEST:
        k = int(table[:, 3].argmax()) // 2
        raise GraphError(f"{chunk.where(k)} has a name of {longest:,} bytes: at most {_LONGEST:,} are taken")
    return longest


def _write_by_key(folder: Path, sort: ExternalSort, *, names: bool) -> int:
    """Writes the sorted side of the table; of names also where each first occurred."""
    count, last = 0, None
    keys_at, places_at = folder / "keys", folder / "places"
    with named(keys_at), keys_at.open("wb") as keys_file, places_at.open("wb") as places_file:
        for keys, values in sort.chunks():
            if names:
                assert values is not None
                if (keys[1:] == keys[:-1]).any() or keys[0] == last:
                    raise HashCollisionError("two names have the same hash")
                last = int(keys[-1])
                places_file.write(np.ascontiguousarray(values["place"]).data)
            keys_file.write(keys.data)
            count += len(keys)
    return count


def _write_numbers(folder: Path, count: int, memory: int) -> None:
    """Numbers names by where they first occurred: sorted by place they are in order, sorted back they are a table."""
    with ExternalSort(_fresh(folder / "by_place"), np.dtype(np.int32), memory=memory // 2) as by_place:
        with (folder / "places").open("rb") as file:
            for first, places in _pieces(file):
                by_place.add(places, np.arange(first, first + len(places), dtype=np.int32))
        with ExternalSort(_fresh(folder / "back"), np.dtype(np.int32), memory=memory // 2) as back:
            number = 0
            for keys, values in by_place.chunks():
                assert values is not None
                back.add(values.astype(np.int64), np.arange(number, number + len(keys), dtype=np.int32))
                number += len(keys)
            with named(folder / "numbers"), (folder / "numbers").open("wb") as out:
                for _, values in back.chunks():
                    assert values is not None
                    out.write(values.data)
            back.remove()
        by_place.remove()
    assert number == count


def _pieces(file: BinaryIO) -> Iterator[tuple[int, Int64[np.ndarray, " n"]]]:
    """Integers of a file, with how many are before them."""
    first = 0
    while len(piece := np.fromfile(file, np.int64, 1 << 17)):
        yield first, piece
        first += len(piece)


def _fresh(folder: Path) -> Path:
    """A folder that holds nothing of an earlier process."""
    if folder.exists():
        shutil.rmtree(folder)
    return folder
