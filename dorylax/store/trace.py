"""trace.json: events of Chrome's trace format, one per line, appended as they come and read back.

Between two appends the file is strict JSON, which Perfetto opens. New lines go behind the end of the file; then the first of
them replaces the closing bracket. A full disk therefore leaves the old file, and a killed process leaves at most a cut line,
at which `read` stops.

*Marks* are events of phase "i" with the number of epochs finished before them. A run that continues from a checkpoint cuts
the file back to the mark of its epochs (`TraceFile`), because it repeats the later ones.

All functions that write raise OSError if the file system refuses.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from dorylax.store.durable import open_in_place
from dorylax.store.run_directory import SCHEMA, RunDirectoryError, access, check_schema

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
"""Required fields of events, and of their `args`, by phase."""
_MOST = 2**63
"""Bound of all numbers in a trace."""
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@final
class TraceFile:
    """An open trace, cut back to the last mark of at most a number of epochs; a new one if there is no such mark.

    Args:
        path: The file.
        epochs: Number of finished epochs.

    Attributes:
        path: The file.
        size: Its number of bytes.
        names: Its events of phase "M", which name processes and threads.
        marks: Its marks.
    """

    def __init__(self, path: Path, epochs: int = 0) -> None:
        self.path, self.size = path, len(_HEAD + _TAIL)
        self.names, self.marks, end = _kept(path, epochs)
        new = os.O_CREAT | os.O_TRUNC
        self._file = os.fdopen(open_in_place(path, os.O_RDWR | (0 if end else new)), "r+b", buffering=0)
        try:
            if end:
                self._end_at(end)
            else:
                self._put(_HEAD + _TAIL, 0)
        except BaseException:
            self._file.close()
            if not end:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise

    def append(self, lines: list[str]) -> None:
        """Append events (`line_of`); after an error, the file is unchanged."""
        if not lines:
            return
        begin = self.size - len(_TAIL)
        separator = "\n" if begin == len(_HEAD) else ",\n"
        content = (separator + ",\n".join(lines)).encode() + _TAIL
        try:
            self._put(content[len(_TAIL) :], self.size)
            self._put(content[: len(_TAIL)], begin)
        except BaseException:
            with contextlib.suppress(OSError):
                self._end_at(begin)
            raise
        self.size = begin + len(content)

    def sync(self) -> None:
        """Flush the file to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush the file to disk and close it, even if the flush fails. A second call does nothing."""
        if not self._file.closed:
            with self._file:
                self.sync()

    def _end_at(self, place: int) -> None:
        """End the file at a place with the closing bracket, which comes first: there is room for it, even on a full disk."""
        self._put(_TAIL, place)
        self.size = place + len(_TAIL)
        self._file.truncate(self.size)

    def _put(self, content: bytes, place: int) -> None:
        left = memoryview(content)
        while left:
            written = os.pwrite(self._file.fileno(), left, place)
            left, place = left[written:], place + written


def line_of(event: Event) -> str:
    """Return an event as a line for `TraceFile.append`, in ASCII; raise ValueError for NaN or infinity."""
    return _encode(event)


def mark(epochs: int, microseconds: float, size: int) -> dict[str, Any]:
    """Return a mark.

    Args:
        epochs: Number of finished epochs.
        microseconds: Time of the mark: the end of the last event before it.
        size: Number of bytes of the file before it.
    """
    arguments = {"epochs": epochs, "bytes": size}
    return {"name": "epochs", "ph": "i", "s": "g", "ts": microseconds, "pid": 0, "tid": 0, "args": arguments}


def cut(path: Path, epochs: int) -> None:
    """Cut a trace back as `TraceFile` does; remove a trace without such a mark."""
    if _kept(path, epochs)[2]:
        TraceFile(path, epochs).close()
    else:
        path.unlink(missing_ok=True)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace up to its first damaged line.

    Raises:
        RunDirectoryError: The file is no trace, has a newer schema, or cannot be read.
    """
    with access(path, "read"), path.open("rb") as file:
        head = file.readline()
        if not _HEAD.startswith(head):  # else its process was killed at the start
            _check_head(path, head)
            for event, _ in _events(file):
                yield event


def _check_head(path: Path, head: bytes) -> None:
    if head.rstrip(b"\n") == _HEAD:
        return
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        check_schema(str(path), json.loads(head.rstrip(b"\n") + b"]}")["schema"], SCHEMA)
    raise RunDirectoryError(f"{path} is not a trace of a dorylax run: its first line should be {_HEAD.decode()}")


def _events(file: Iterable[bytes], *, tasks: bool = True) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each event behind the head and the position of its end, up to the first damaged line; perhaps without tasks."""
    place = len(_HEAD) + 1
    for text in file:
        if not text.endswith(b"\n") or text == _TAIL[1:]:
            return
        place += len(text)
        if tasks or _MARK in text or _NAME in text:
            event = _event(text)
            if event is None:
                return
            yield event, place - len(text) + len(text.rstrip(b",\n"))


def _event(text: bytes) -> dict[str, Any] | None:
    """Return the event of a line; None if the line is damaged."""
    try:
        event = json.loads(text.rstrip(b",\n"))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and _is_whole(event) else None


def _is_whole(event: Event) -> bool:
    """Whether an event has the fields of its phase: a line with a flipped bit may be JSON."""
    phase, arguments = event.get("ph"), event.get("args")
    if not isinstance(phase, str) or phase not in _FIELDS or not isinstance(arguments, dict):
        return False
    pairs = zip((event, arguments), _FIELDS[phase], strict=True)
    return all(_is(values.get(key), kind) for values, fields in pairs for key, kind in fields.items())


def _is(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str)
    return type(value) in (int, kind) and -_MOST < value < _MOST  # neither NaN nor infinity


def _kept(path: Path, epochs: int) -> tuple[list[Event], list[Event], int]:
    """Return names and marks up to the last mark of at most `epochs` epochs, and its end; 0 if there is none."""
    names: list[Event] = []
    marks: list[Event] = []
    end = whole = finished = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if file.readline().rstrip(b"\n") == _HEAD:
            for event, event_end in _events(file, tasks=False):
                if event["ph"] == "M":
                    names.append(event)
                elif finished <= event["args"]["epochs"] <= epochs:
                    marks.append(event)
                    end, whole, finished = event_end, len(names), event["args"]["epochs"]
                else:
                    break
    return names[:whole], marks, end
