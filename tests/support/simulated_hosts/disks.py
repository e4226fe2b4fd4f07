"""Disks that fail, at whatever step of writing a file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax import durable
from dorylax.runs import parts

STEPS = ("open", "write", "sync", "rename", "folder")
"""Of `durable.arriving_file`, each of which may fail; the last one when the file is there already."""

_MOST_BYTES = 4096


@contextlib.contextmanager
def failing(rng: np.random.Generator, probability: float) -> Iterator[None]:
    """Lets some of the parts of checkpoints that are written meanwhile fail.

    Args:
        rng: draws.
        probability: that one fails.
    """
    arriving, writing = durable.arriving_file, parts.write_file

    @contextlib.contextmanager
    def arrives(path: Path) -> Iterator[Any]:
        if rng.random() >= probability:
            with arriving(path) as file:
                yield file
            return
        step, room = str(rng.choice(STEPS)), int(rng.integers(_MOST_BYTES))
        system, durable.os = durable.os, _System(step)  # type: ignore[attr-defined]
        try:
            with arriving(path / "no folder" if step == "open" else path) as file:
                yield _File(file, step, room)
                if step == "write":
                    raise _full()  # when it is flushed
        finally:
            durable.os = system  # type: ignore[attr-defined]
        raise AssertionError(f"an error of {step} was passed over")

    def write_file(path: Path, content: Callable[[Any], object]) -> None:
        with arrives(path) as file:
            content(file)

    parts.write_file = write_file
    try:
        yield
    finally:
        parts.write_file = writing


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@final
class _System:
    """The module `os`, of which one function fails."""

    def __init__(self, step: str) -> None:
        self._step, self._syncs = step, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        self._syncs += 1  # of the file, then of its folder
        if (self._syncs, self._step) in ((1, "sync"), (2, "folder")):
            raise _full()
        os.fsync(descriptor)

    def replace(self, *given: Any) -> None:
        if self._step == "rename":
            raise _full()
        os.replace(*given)


@final
class _File:
    """A file on a disk that may be full after some bytes."""

    def __init__(self, file: Any, step: str, room: int) -> None:
        self._file, self._full, self._room = file, step == "write", room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, content: Any) -> int:
        self._room -= memoryview(content).nbytes
        if self._full and self._room < 0:
            raise _full()
        return int(self._file.write(content))
