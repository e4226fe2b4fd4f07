"""Sorting more records than memory holds: sorted runs on disk, which are merged while they are read.

A run is a file of keys and one of values, complete once `run-A-B.json` is there, which says how many records it has; A and B
are the first and the last of the runs, in the order in which they were added, that it holds: merging runs makes one that
replaces them. So whatever a killed process leaves is either complete or is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, final

import numpy as np
from jaxtyping import Int64

from dorylax.durable import make_folder, named, write_json
from dorylax.graph.stream.sorting import Records, Sorter, empty_records, merge
from dorylax.graph.validate import GraphError
from dorylax.machine import cores

_NAME = re.compile(r"run-(\d{6})-(\d{6})\.json")
_FEWEST = 64  # records of a run, or of a block: less is all overhead
_MOST = 2**32 - 1  # records of a run: their positions are uint32
_MOST_OPEN = 256  # runs, of two files each
_BLOCK = 1 << 20  # bytes that are worth a read of their own
_MOST_MERGED = 1 << 28  # bytes of all blocks: more is no faster


@final
class ExternalSort:
    """Sorts records by an int64 key; equal keys stay in the order in which they were added.

    Add all, then read them in order, as often as needed::

        with ExternalSort(folder, np.dtype(np.int32), memory=2**30) as sort:
            for keys, values in source:
                sort.add(keys, values)
            for keys, values in sort.chunks():
                ...
            sort.remove()

    A process that is killed leaves its complete runs. One that opens the same folder again finds in `state` what was given
    with the last chunk that is wholly in them, and adds what follows that chunk, in chunks of any size.

    Args:
        folder: of the runs, for this sort alone; it is made where it is not there.
        dtype: of the values that go with each key, of any fixed size, a structured one for several; None for none.
        memory: bytes that may be taken; some 10 kB are at least.
        unique: keep only the first of equal keys; or the name of a field of the values, and keep only the first of equal
            neighbours in both.

    Attributes:
        state: what was given with the last chunk that was wholly on disk when the folder was opened; None in a new one.

    Raises:
        OSError: the file system refuses (a full disk, say); it names a file of the folder.
        GraphError: a run on disk is damaged, or the folder holds other runs.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any] | None, *, memory: int, unique: bool | str = False) -> None:
        self._folder, self._dtype, self._memory, self._unique = folder, dtype, memory, unique
        make_folder(folder)
        self._runs = _complete_runs(folder, dtype)
        last = self._runs[-1] if self._runs else _Run(folder, 0, -1)
        self.state: Any = last.state
        self._state = last.state
        self._next = last.last + 1
        self._size = self.run_size(dtype, memory)
        self._filled = 0
        self._buffers: list[Records] = []
        self._sorter: Sorter | None = None
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[_Run] | None = None

    def __enter__(self) -> ExternalSort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    @staticmethod
    def run_size(dtype: np.dtype[Any] | None, memory: int) -> int:
        """Records of a run: one is filled while another is sorted and written."""
        return max(_FEWEST, min(_MOST, memory // (3 * _record_bytes(dtype) + Sorter.bytes_per_record(dtype))))

    @staticmethod
    def disk_bytes(dtype: np.dtype[Any] | None, num_records: int, memory: int) -> int:
        """Bytes of disk that so many records take at most, also while runs are merged to fewer."""
        runs = -(-num_records // ExternalSort.run_size(dtype, memory))
        return num_records * _record_bytes(dtype) * (2 if runs > _fan_in(memory) else 1)

    @property
    def num_records(self) -> int:
        """Records in complete runs: all, once `finish` was called (of `unique` the first ones in each run)."""
        return sum(run.records for run in self._runs)

    def add(self, keys: Int64[np.ndarray, " n"], values: np.ndarray | None = None, state: Any = None) -> None:
        """Adds records.

        Args:
            keys: any.
            values: `[n]` of the sort's type; None where it has none.
            state: of JSON: what a process that goes on needs to know to add what follows; None where none will.
        """
        if self._filled and self._filled + len(keys) > self._size:
            self._flush()  # so that a run ends with a chunk, and what it holds does not depend on how chunks were cut
        at = 0
        while at < len(keys):
            at += self._fill(keys[at:], None if values is None else values[at:])
            if self._filled == self._size and at < len(keys):
                self._flush(partial=True)
        self._state = state
        if self._filled == self._size:
            self._flush()

    def finish(self) -> None:
        """Writes what was added last, and gives memory back; nothing may be added after it."""
        if self._filled:
            self._flush()
        self._wait()
        self._buffers, self._sorter = [], None

    def chunks(self) -> Iterator[Records]:
        """All records in order, some at a time; the memory of each chunk is used again for the next.

        Raises:
            OSError, GraphError: as the class says.
        """
        self.finish()
        self._reduce(_fan_in(self._memory))
        yield from self._merged(self._runs)

    def remove(self) -> None:
        """Removes the folder."""
        self._pool.shutdown()
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    def _fill(self, keys: Int64[np.ndarray, " n"], values: np.ndarray | None) -> int:
        """Takes as many records as there is room for."""
        if not self._buffers:
            self._buffers = [empty_records(self._size, self._dtype) for _ in range(2)]
            self._sorter = Sorter(self._size, self._dtype)
        taken = min(len(keys), self._size - self._filled)
        room = self._buffers[0].part(self._filled, self._filled + taken)
        room.keys[:] = keys[:taken]
        if room.values is not None:
            assert values is not None
            room.values[:] = values[:taken]
        self._filled += taken
        return taken

    def _flush(self, *, partial: bool = False) -> None:
        """Has the records that wait written, and goes on in the other buffer."""
        self._wait()
        run = _Run(self._folder, self._next, self._next, state=self._state, partial=partial)
        self._next += 1
        self._writing = self._pool.submit(self._sort_and_write, self._buffers[0].part(0, self._filled), run)
        self._buffers.reverse()
        self._filled = 0

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self._runs.append(writing.result())

    def _sort_and_write(self, records: Records, run: _Run) -> _Run:
        assert self._sorter is not None
        records = self._sorter.sort(records)
        return run.write([self._without_repeats(records, None) if self._unique else records])

    def _reduce(self, fan_in: int) -> None:
        """Merges runs until there are few enough to be merged at once."""
        while len(self._runs) > fan_in:
            # As few as will do, so that little is written again; neighbours, so that equal keys keep their order.
            number = min(fan_in, len(self._runs) - fan_in + 1)
            starts = range(len(self._runs) - number + 1)
            at = min(starts, key=lambda start: sum(run.records for run in self._runs[start : start + number]))
            replaced = self._runs[at : at + number]
            run = dataclasses.replace(replaced[-1], first=replaced[0].first)
            self._runs[at : at + number] = [run.write(self._merged(replaced))]
            for one in replaced:
                one.remove()

    def _merged(self, runs: list[_Run]) -> Iterator[Records]:
        """The records of some runs in order."""
        if not runs:
            return
        limit = min(self._memory // 6, _MOST_MERGED)
        size = max(_FEWEST, limit // (_record_bytes(self._dtype) * len(runs)))
        out = empty_records(size * len(runs), self._dtype)
        last: Records | None = None
        with contextlib.ExitStack() as stack:
            readers = [_Reader(stack, run, size, self._dtype) for run in runs]
            while readers := [reader for reader in readers if reader.refill()]:
                heads = _up_to_a_bound(readers)
                chunk = out.part(0, sum(len(head.keys) for head in heads))
                merge(heads, chunk, cores())
                if self._unique:
                    before, last = last, _copied(chunk.part(len(chunk.keys) - 1, len(chunk.keys)))
                    chunk = self._without_repeats(chunk, before)
                if len(chunk.keys):
                    yield chunk

    def _without_repeats(self, records: Records, last: Records | None) -> Records:
        """Sorted records without those that equal the one before them, the first of them `last`."""
        keep = np.ones(len(records.keys), bool)
        compared = [(records.keys, None if last is None else last.keys)]
        if isinstance(self._unique, str) and records.values is not None:
            of_last = None if last is None or last.values is None else last.values[self._unique]
            compared.append((records.values[self._unique], of_last))
        keep[1:] = np.logical_or.reduce([array[1:] != array[:-1] for array, _ in compared])
        if last is not None:
            keep[0] = any(array[0] != before[0] for array, before in compared if before is not None)
        return Records(records.keys[keep], None if records.values is None else records.values[keep])


@dataclasses.dataclass(frozen=True)
class _Run:
    """Sorted records in two files, and a third that says so once they are complete.

    Attributes:
        first, last: runs that it holds.
        records: how many.
        state: what was given with the last chunk that is wholly in it and the runs before.
        partial: whether it is a part of a chunk that is larger than a run, and not the last.
    """

    folder: Path
    first: int
    last: int
    records: int = 0
    state: Any = None
    partial: bool = False

    def path(self, suffix: str) -> Path:
        return self.folder / f"run-{self.first:06}-{self.last:06}.{suffix}"

    def write(self, chunks: Iterable[Records]) -> _Run:
        """Fills the files; the run that they are then."""
        records = 0
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(self._new_file(suffix)) for suffix in ("keys", "values")]
            for chunk in chunks:
                for file, array in zip(files, chunk, strict=True):
                    if array is not None and len(array):
                        file.write(array.view(np.uint8).data)
                records += len(chunk.keys)
        run = dataclasses.replace(self, records=records)
        write_json(run.path("json"), {"records": records, "state": self.state, "partial": self.partial})
        return run

    def remove(self) -> None:
        for suffix in ("json", "keys", "values"):
            self.path(suffix).unlink()

    @contextlib.contextmanager
    def _new_file(self, suffix: str) -> Iterator[BinaryIO]:
        path = self.path(suffix)
        with named(path), path.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


def _complete_runs(folder: Path, dtype: np.dtype[Any] | None) -> list[_Run]:
    """The runs in a folder, in order; files of others are removed: of one that was being written, or was merged."""
    found = []
    for path in folder.iterdir():
        if name := _NAME.fullmatch(path.name):
            try:
                fields = json.loads(path.read_bytes())
                run = _Run(folder, int(name[1]), int(name[2]), fields["records"], fields["state"], fields["partial"])
            except (ValueError, LookupError, TypeError) as error:
                raise GraphError(f"{path} is damaged: remove {folder}, and begin again") from error
            found.append(run)
    # Of runs that begin alike the one that holds more; what it holds is then passed over.
    found.sort(key=lambda run: (run.first, -run.last))
    runs: list[_Run] = []
    for run in found:
        if run.first == (runs[-1].last + 1 if runs else 0):
            runs.append(run)
    while runs and runs[-1].partial:  # whoever goes on adds the whole chunk
        runs.pop()
    kept = {run.path(suffix) for run in runs for suffix in ("json", "keys", "values")}
    for path in folder.iterdir():
        if path not in kept:
            path.unlink()
    for run in runs:
        width = 0 if dtype is None else dtype.itemsize
        for suffix, size in (("keys", 8), ("values", width)):
            path = run.path(suffix)
            if not path.is_file() or path.stat().st_size != size * run.records:
                raise GraphError(f"{path} is damaged, or of another sort: remove {folder}, and begin again")
    return runs


class _Reader:
    """Reads a run block by block."""

    def __init__(self, stack: contextlib.ExitStack, run: _Run, size: int, dtype: np.dtype[Any] | None) -> None:
        self._files: list[tuple[Path, io.FileIO]] = []
        for suffix in ("keys", "values"):
            path = run.path(suffix)
            with named(path):
                self._files.append((path, stack.enter_context(path.open("rb", buffering=0))))
        self._block = empty_records(min(size, run.records), dtype)
        self._first = self._end = 0  # of what is in the block and was not taken
        self.unread = run.records

    def refill(self) -> bool:
        """Fills the block where less than half of it is left; whether there is anything."""
        held = self._end - self._first
        if self.unread and held <= len(self._block.keys) // 2:
            count = min(len(self._block.keys) - held, self.unread)
            for (path, file), array in zip(self._files, self._block, strict=True):
                if array is not None:
                    array[:held] = array[self._first : self._end]  # not over itself: it is at most half of the block
                    _read(path, file, array[held : held + count])
            self._first, self._end = 0, held + count
            self.unread -= count
        return self._end > self._first

    @property
    def keys(self) -> Int64[np.ndarray, " n"]:
        """Those in the block."""
        return self._block.keys[self._first : self._end]

    def take(self, count: int) -> Records:
        """The next records of the block."""
        self._first += count
        return self._block.part(self._first - count, self._first)


def _read(path: Path, file: io.FileIO, array: np.ndarray) -> None:
    """Fills an array, and has the system read on, and forget what was read."""
    left, at = array.view(np.uint8).data, file.tell()
    with named(path):
        while left:
            read = file.readinto(left)
            if not read:
                raise GraphError(f"{path} is cut off: remove {path.parent}, and begin again")
            left = left[read:]
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), at, array.nbytes, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), at + array.nbytes, array.nbytes, os.POSIX_FADV_WILLNEED)


def _up_to_a_bound(readers: list[_Reader]) -> list[Records]:
    """Takes from each run what no record that is still on disk comes before: of one run all that was read."""
    ends = [(int(reader.keys[-1]), at) for at, reader in enumerate(readers) if reader.unread]
    if not ends:
        return [reader.take(len(reader.keys)) for reader in readers]
    bound, at = min(ends)
    # Records that equal the bound may follow in the run that sets it, and come before those of later runs.
    return [
        reader.take(int(np.searchsorted(reader.keys, bound, side="right" if index <= at else "left")))
        for index, reader in enumerate(readers)
    ]


def _copied(records: Records) -> Records:
    return Records(records.keys.copy(), None if records.values is None else records.values.copy())


def _record_bytes(dtype: np.dtype[Any] | None) -> int:
    return 8 + (0 if dtype is None else dtype.itemsize)


def _fan_in(memory: int) -> int:
    """Runs that are merged at once."""
    return max(2, min(_MOST_OPEN, memory // 6 // _BLOCK))
