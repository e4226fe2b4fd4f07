"""trace.json: events of Chrome's trace format, a line each, written as they come and read back.

Between two appends the file is whole: strict JSON, as Perfetto opens it. New lines are put behind the end of the old ones,
and only then does the first of them take the place of the closing bracket; so a full disk leaves what was there, and a
process that is killed while it writes leaves at most a cut line, where `read` stops.

*Marks* are events of the phase "i" that say how many epochs had been finished there. A run that goes on from a checkpoint
cuts the file back to the mark of its epochs (`TraceFile.resume`): what a killed process did after it is done again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from dorylax.store.durable import open_in_place
from dorylax.store.run_directory import SCHEMA, RunDirectoryAccessError, RunDirectoryError

Event = Mapping[str, Any]

_HEAD = f'{{"schema": {SCHEMA}, "displayTimeUnit": "ms", "traceEvents": ['.encode()
_TAIL = b"\n]}\n"
_MARK, _NAME = b'"ph":"i"', b'"ph":"M"'
_FIELDS: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "X": (
        {"name": str, "cat": str, "ts": float, "dur": float, "pid": int, "tid": int},
        {"server": int, "interval": int, "epoch": int, "kind": str},
    ),
    "M": ({"name": str, "pid": int, "tid": int}, {"name": str}),
    "i": ({"name": str, "s": str, "ts": float, "pid": int, "tid": int}, {"epochs": int, "bytes": int}),
}
"""Of the events of each phase what they have at least, and what their `args` have."""
_MOST = 2**63
"""Above every number in a trace."""
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class TraceWarning(UserWarning):
    """A trace could not be written: the run goes on without."""


class Kept(NamedTuple):
    """What a trace holds already.

    Attributes:
        names: its events of the phase "M", which name processes and threads.
        marks: its marks, in order.
    """

    names: tuple[Event, ...] = ()
    marks: tuple[Event, ...] = ()


@final
class TraceFile:
    """A trace that is being written; make it with `create` or `resume`.

    Attributes:
        path: the file.
        size: its bytes.
    """

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path, self.size = path, size
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> TraceFile:
        """A trace without events, in place of one that may be there.

        Raises:
            OSError: the file system refuses.
        """
        file = cls(path, open_in_place(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), len(_HEAD + _TAIL))
        try:
            file._put(_HEAD + _TAIL, 0)
        except BaseException:
            file._give_up()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return file

    @classmethod
    def resume(cls, path: Path, epochs: int) -> tuple[TraceFile, Kept]:
        """The trace that is there, cut back to the last mark of at most so many epochs; a new one if there is none.

        Raises:
            OSError: the file system refuses.
        """
        kept, end = _kept(path, epochs)
        if not end:
            return cls.create(path), Kept()
        file = cls(path, open_in_place(path, os.O_RDWR), end + len(_TAIL))
        try:
            file._end_at(end)
        except BaseException:
            file._give_up()
            raise
        return file, kept

    def append(self, lines: list[str]) -> None:
        """Adds events (`line_of`).

        Raises:
            OSError: the file system refuses; the file is as before.
        """
        if not lines:
            return
        text = ",\n".join(lines).encode()
        first = self.size == len(_HEAD + _TAIL)
        content = (b"\n" if first else b",\n") + text + _TAIL
        begin = self.size - len(_TAIL)
        try:
            self._put(content[len(_TAIL) :], self.size)
            self._put(content[: len(_TAIL)], begin)
        except BaseException:
            with contextlib.suppress(OSError):
                self._end_at(begin)
            raise
        self.size = begin + len(content)

    def sync(self) -> None:
        """Puts on disk what has been written.

        Raises:
            OSError: the file system refuses.
        """
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Puts the file on disk, and lets go of it. A second call does nothing.

        Raises:
            OSError: the file system refuses; the file is closed all the same.
        """
        if self._descriptor < 0:
            return
        try:
            self.sync()
        finally:
            self._give_up()

    def _give_up(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _end_at(self, place: int) -> None:
        """Lets the file end with the bytes before this place, and the closing bracket.

        The bracket first: it lies where the file has its room already, even on a full disk.
        """
        self._put(_TAIL, place)
        os.ftruncate(self._descriptor, place + len(_TAIL))

    def _put(self, content: bytes, place: int) -> None:
        left = memoryview(content)
        while left:
            written = os.pwrite(self._descriptor, left, place)
            left, place = left[written:], place + written


def line_of(event: Event) -> str:
    """An event as `TraceFile.append` takes it: ASCII.

    Raises:
        ValueError: a value that JSON does not know (NaN, infinity).
    """
    return _encode(event)


def mark(epochs: int, microseconds: float, size: int) -> dict[str, Any]:
    """A mark.

    Args:
        epochs: that are finished.
        microseconds: where it lies in time: at the end of the last event before it.
        size: bytes of the file before it.
    """
    arguments = {"epochs": epochs, "bytes": size}
    return {"name": "epochs", "ph": "i", "s": "g", "ts": microseconds, "pid": 0, "tid": 0, "args": arguments}


def cut(path: Path, epochs: int) -> None:
    """Cuts a trace back as `TraceFile.resume` does; one without such a mark, which a run would begin anew, is removed.

    Raises:
        OSError: the file system refuses.
    """
    if _kept(path, epochs)[1]:
        TraceFile.resume(path, epochs)[0].close()
    else:
        path.unlink(missing_ok=True)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a trace, as far as it is whole, without holding them all.

    Raises:
        RunDirectoryError: it is no trace, or of a newer schema.
        RunDirectoryAccessError: the file system refuses.
    """
    try:
        with path.open("rb") as file:
            head = file.readline()
            if _HEAD.startswith(head):
                return  # its process was killed when it began
            _check_head(path, head)
            for event in map(_event, _lines(file)):
                if event is None:
                    return
                yield event
    except OSError as error:
        raise RunDirectoryAccessError(f"{path} cannot be read: {error}") from error


def _check_head(path: Path, head: bytes) -> None:
    if head.rstrip(b"\n") == _HEAD:
        return
    try:
        schema = json.loads(head.rstrip(b"\n") + b"]}")["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        schema = None
    if isinstance(schema, int) and schema > SCHEMA:
        raise RunDirectoryError(
            f"{path} has schema {schema}, this version of dorylax reads up to {SCHEMA}: update dorylax"
        )
    raise RunDirectoryError(f"{path} is not a trace of a dorylax run: its first line should be {_HEAD.decode()}")


def _lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines up to the closing bracket."""
    for text in file:
        if not text.endswith(b"\n") or text == _TAIL[1:]:
            return
        yield text


def _event(text: bytes) -> dict[str, Any] | None:
    """The event of a line; None where it is damaged."""
    try:
        event = json.loads(text.rstrip(b",\n"))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and _is_whole(event) else None


def _is_whole(event: Event) -> bool:
    """Whether it has what events of its phase have: a line in which a bit has flipped may be JSON still."""
    phase, arguments = event.get("ph"), event.get("args")
    if not isinstance(phase, str) or phase not in _FIELDS or not isinstance(arguments, dict):
        return False
    own, inner = _FIELDS[phase]
    return _has(event, own) and _has(arguments, inner)


def _has(values: Event, fields: Mapping[str, type]) -> bool:
    return all(_is(values.get(key), kind) for key, kind in fields.items())


def _is(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str)
    return type(value) in (int, kind) and -_MOST < value < _MOST  # neither NaN nor infinity


def _kept(path: Path, epochs: int) -> tuple[Kept, int]:
    """What a trace holds up to the last mark of at most so many epochs, and where that mark ends; 0 if there is none."""
    names: list[Event] = []
    marks: list[Event] = []
    end = whole = 0
    told = 0  # epochs of the last mark
    try:
        with path.open("rb") as file:
            if file.readline().rstrip(b"\n") != _HEAD:
                return Kept(), 0
            place = len(_HEAD) + 1
            for text in _lines(file):
                place += len(text)
                if _MARK not in text and _NAME not in text:
                    continue
                if (event := _event(text)) is None:
                    break
                if event["ph"] == "M":
                    names.append(event)
                    continue
                if not told <= event["args"]["epochs"] <= epochs:
                    break
                told = event["args"]["epochs"]
                marks.append(event)
                end, whole = place - len(text) + len(text.rstrip(b",\n")), len(names)
    except FileNotFoundError:
        pass
    return Kept(tuple(names[:whole]), tuple(marks)), end
