"""Operations of a process on files, recorded and disturbed from beneath: `disk_shim.c`, preloaded, and its log."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final


@final
class Kind(enum.IntEnum):
    """Kinds of operations, by their numbers in disk_shim.c."""

    MARK, OPEN, CREATE, WRITE, TRUNCATE, SYNC, CLOSE, RENAME, MKDIR, UNLINK, RMDIR, EXCHANGE = range(12)


GROWS = frozenset({Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.CLOSE, Kind.RENAME, Kind.EXCHANGE, Kind.MKDIR})
"""Operations that a full disk can refuse: on a network's file system syncing and closing, too; a folder may need a block."""
CHANGES = GROWS | {Kind.TRUNCATE, Kind.UNLINK, Kind.RMDIR}
OPENS = frozenset({Kind.OPEN, Kind.CREATE})


@final
class Fault(NamedTuple):
    """A failure of an operation.

    Attributes:
        name: For tables.
        error: Number of the error; -1: a write writes only its first half.
        kinds: Of operations that it can befall.
        lasting: Whether all later operations of these kinds fail, too.
    """

    name: str
    error: int
    kinds: frozenset[Kind]
    lasting: bool = False


FAULTS = (
    Fault("ENOSPC once", errno.ENOSPC, GROWS),
    Fault("ENOSPC from then on", errno.ENOSPC, GROWS, lasting=True),
    Fault("EDQUOT from then on", errno.EDQUOT, GROWS, lasting=True),
    Fault("EIO once", errno.EIO, CHANGES | OPENS),
    Fault("EIO from then on", errno.EIO, CHANGES | OPENS, lasting=True),
    Fault("EMFILE once", errno.EMFILE, OPENS),
    Fault("EMFILE from then on", errno.EMFILE, OPENS, lasting=True),
    Fault("EINTR once", errno.EINTR, frozenset({Kind.OPEN, Kind.CREATE, Kind.WRITE})),
    Fault("a short write", -1, frozenset({Kind.WRITE})),
)


@final
class Watch(NamedTuple):
    """A task of the shim.

    Attributes:
        folder: Absolute, without links; operations in it are counted and recorded.
        log: File for them, outside.
        fail_at: Number of the operation, from 0, that fails; -1 for none.
        fault: How it fails.
    """

    folder: Path
    log: Path
    fail_at: int = -1
    fault: Fault | None = None


@final
class Shim:
    """The shim in this process, which was started with it as LD_PRELOAD. It also marks acknowledged checkpoints."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        text, number = ctypes.c_char_p, ctypes.c_long
        self._library.disk_shim_watch.argtypes = [text, text, number, ctypes.c_uint, ctypes.c_int, ctypes.c_int]
        self._mark_checkpoints()

    @classmethod
    @contextlib.contextmanager
    def watching(cls, watch: Watch) -> Iterator[Shim]:
        """It watches within."""
        shim = _SHIMS[0] if _SHIMS else cls()
        _SHIMS[:] = [shim]
        fault = watch.fault or Fault("", 0, frozenset())
        kinds, paths = sum(1 << kind for kind in fault.kinds), [os.fsencode(path) for path in watch[:2]]
        shim._library.disk_shim_watch(*paths, watch.fail_at, kinds, fault.error, int(fault.lasting))
        try:
            yield shim
        finally:
            shim._library.disk_shim_watch(b"", b"", -1, 0, 0, 0)

    def mark(self, text: str) -> None:
        """Writes a mark into the log."""
        self._library.disk_shim_mark(text.encode())

    def _mark_checkpoints(self) -> None:
        from dorylax.store.checkpoint import Checkpoints

        save = Checkpoints.save

        def marked(store: Checkpoints, *arguments: object) -> Path:
            path = save(store, *arguments)
            self.mark(f"saved {path}")
            return path

        # Or an error would be reported as one of the user's own code, which this file is.
        marked.__code__ = marked.__code__.replace(co_filename=save.__code__.co_filename)
        Checkpoints.save = marked  # type: ignore[method-assign]


_SHIMS: list[Shim] = []


@final
class Operation(NamedTuple):
    """One operation, as it was done.

    Attributes:
        kind: Its kind.
        error: The error that it ended with; 0 for none.
        path: Absolute; of a mark its text.
        target: Of a rename or an exchange, the second path.
        offset: Of a write, where; of a truncation, the length.
        data: Of a write, the written bytes.
    """

    kind: Kind
    error: int
    path: str
    target: str
    offset: int
    data: bytes


_HEADER = struct.Struct("<iiqqqq")


def operations(log: Path) -> Iterator[Operation]:
    """The operations of a log, in order."""
    content, place = log.read_bytes(), 0

    def take(length: int) -> bytes:
        nonlocal place
        place += length
        return content[place - length : place]

    while place < len(content):
        kind, error, offset, *lengths = _HEADER.unpack(take(_HEADER.size))
        path, target, data = map(take, lengths)
        yield Operation(Kind(kind), error, os.fsdecode(path), os.fsdecode(target), offset, data)


def lacking() -> str | None:
    """The part of a machine that the shim needs and this one lacks; None if nothing."""
    if sys.platform != "linux":
        return "Linux, whose loader and /proc the shim uses"
    return None if _compiler() else "a C compiler"


def _compiler() -> str | None:
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """Compiles the shim into a folder; nothing must be `lacking`."""
    compiler = _compiler()
    assert compiler is not None
    target = folder / "disk_shim.so"
    flags: Sequence[str] = ["-O2", "-Wall", "-shared", "-fPIC"]
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, *flags, "-o", str(target), str(source), "-ldl", "-pthread"], check=True)
    return target
