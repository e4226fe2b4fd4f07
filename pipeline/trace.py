"""Writer of a run's trace: it writes each epoch when the epoch is finished, and keeps no spans in memory after that."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import final

from dorylax.errors import RunWarning
from dorylax.pipeline.config import TraceKind
from dorylax.pipeline.timeline import Lanes, Span, nanoseconds
from dorylax.store import trace
from dorylax.store.trace import TraceFile

LIMIT = 128 * 2**20
"""Largest size of a sampled trace in bytes."""

_LEAST = 2  # epochs per stretch: the second shows the end of the first


@final
class Sampling:
    """Traces every epoch at first, then stretches of epochs with growing gaps; each gap is as long as the run before it.

    Decisions depend on `wrote` alone, so a resumed run decides as if it had never stopped.

    Args:
        limit: Largest size of the trace in bytes. A quarter is for the first epochs, which are all traced. Every later
            stretch has at least two epochs, and at most 1/64 of the limit.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._first = 0  # first epoch of the current or next stretch
        self._begin = 0  # bytes before it
        self._size = 0
        self._largest = 0  # bytes of one epoch

    def wants(self, epoch: int) -> bool:
        """Return whether to trace an epoch: it is in a stretch, and the largest epoch so far would fit."""
        return epoch >= self._first and self._size + self._largest <= self._limit

    def takes(self, size: int) -> bool:
        """Return whether the trace may grow to this size in bytes; a refusal is final."""
        if size > self._limit:
            self._largest = max(self._largest, size - self._size)
        return size <= self._limit

    def wrote(self, epochs: int, size: int) -> None:
        """Record the size of the trace after all epochs before this one."""
        self._largest = max(self._largest, size - self._size)
        self._size = size
        share = self._limit // (64 if self._first else 4)
        if epochs - self._first >= _LEAST and size - self._begin >= share:
            self._first, self._begin = 2 * epochs, size


@final
class TraceWriter:
    """Collects spans and writes those of an epoch once every interval has finished it.

    A disk error never stops training. The first error issues one `RunWarning`, leaves the file as it was before, and
    ends tracing.

    Args:
        path: Path of the trace file.
        sampling: Selects the traced epochs; None for all epochs.
        epochs: Number of finished epochs, to which the file is truncated.
        continues: Whether the clock continues from its value after these epochs. If not, times are shifted past the last
            time in the file.
    """

    def __init__(self, path: Path, sampling: Sampling | None, *, epochs: int, continues: bool) -> None:
        self._path, self._sampling, self._epochs = path, sampling, epochs
        self._file: TraceFile | None = None
        try:
            self._file = TraceFile(path, epochs)
        except OSError as error:
            _warn(path, error)
        marks = [] if self._file is None else self._file.marks
        self._arrived: list[Span] = []
        self._names: list[str] = []  # unwritten lines that name lanes
        self._lines: dict[int, list[str]] = {}  # lines of unfinished epochs
        self._lanes = Lanes([] if self._file is None else self._file.names)
        self._end = round(1000 * marks[-1]["ts"]) if marks else 0  # nanoseconds
        self._later = 0.0 if continues else self._end / 1e9
        if sampling is not None:
            for mark in marks:
                sampling.wrote(mark["args"]["epochs"], mark["args"]["bytes"])

    @classmethod
    def begin(cls, path: Path, kind: TraceKind, *, epochs: int, continues: bool) -> TraceWriter | None:
        """Return the writer of a new or resumed run, or None if tracing is off.

        Either way, an existing trace is truncated to the finished epochs, because later epochs run again.
        """
        if kind != "off":
            return cls(path, Sampling() if kind == "sample" else None, epochs=epochs, continues=continues)
        try:
            trace.cut(path, epochs)
        except OSError as error:
            _warn(path, error)
        return None

    def add(self, span: Span) -> None:
        """Add a span. A span without an epoch is traced if the current epoch is."""
        if self._file is not None and self._wants(self._epochs if span.epoch < 0 else span.epoch):
            self._arrived.append(span)

    def flush(self, epochs: int) -> None:
        """Write the spans of all epochs before this one."""
        self._epochs = epochs
        self._take_arrived()
        lines, self._names = self._names, []
        for epoch in sorted(epoch for epoch in self._lines if epoch < epochs):
            lines += self._lines.pop(epoch)
        if self._file is not None and lines:
            self._write(self._file, lines, epochs)
        for epoch in [epoch for epoch in self._lines if not self._wants(epoch)]:
            del self._lines[epoch]  # sampling ended or paused while some intervals had run ahead

    def checkpoint(self, *, settled: bool) -> None:
        """Sync the trace to disk for a run that resumes from here.

        Args:
            settled: Whether every later task starts after all tasks so far.
        """
        self.flush(self._epochs)
        if settled:
            self._lanes.free()
        try:
            if self._file is not None:
                self._file.sync()
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        """Sync and close the file. A second call does nothing."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:
            _warn(self._path, error)

    def _write(self, file: TraceFile, lines: list[str], epochs: int) -> None:
        size = file.size + sum(len(line) + 2 for line in lines)
        lines.append(trace.line_of(trace.mark(epochs, self._end / 1000, size)))
        if self._sampling is not None and not self._sampling.takes(size + len(lines[-1]) + 2):
            return
        try:
            file.append(lines)
        except OSError as error:
            self._stop(error)
            return
        if self._sampling is not None:
            self._sampling.wrote(epochs, size)

    def _take_arrived(self) -> None:
        """Assign lanes to the collected spans in order of their ends, and format their lines."""
        arrived = [span.later(self._later) for span in self._arrived] if self._later else self._arrived
        for span in sorted(arrived, key=lambda one: one.end):
            self._end = max(self._end, nanoseconds(span.end))
            *names, event = self._lanes.events(span)
            self._names += map(trace.line_of, names)
            self._lines.setdefault(span.epoch, []).append(trace.line_of(event))
        self._arrived.clear()

    def _wants(self, epoch: int) -> bool:
        return self._sampling is None or self._sampling.wants(epoch)

    def _stop(self, error: OSError) -> None:
        file, self._file = self._file, None
        self._lines.clear()
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        _warn(self._path, error)


def _warn(path: Path, error: OSError) -> None:
    reason = error.strerror or error
    warnings.warn(f"{path} cannot be written ({reason}): the run goes on without it", RunWarning, stacklevel=3)
