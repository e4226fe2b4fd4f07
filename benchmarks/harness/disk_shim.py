"""What a process does to files, seen and disturbed from beneath: `disk_shim.c`, preloaded, and what it has written down."""

from __future__ import annotations

import dataclasses
import enum
import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final


@final
class Kind(enum.IntEnum):
    """Kinds of operations, by their numbers in disk_shim.c."""

    MARK = 0
    OPEN = 1
    CREATE = 2
    WRITE = 3
    TRUNCATE = 4
    SYNC = 5
    CLOSE = 6
    RENAME = 7
    MKDIR = 8
    UNLINK = 9
    RMDIR = 10
    EXCHANGE = 11


GROWS = frozenset({Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.CLOSE, Kind.RENAME, Kind.EXCHANGE, Kind.MKDIR})
"""What a full disk can refuse: on a network's file system syncing and closing, too; a folder may need a block."""
CHANGES = GROWS | {Kind.TRUNCATE, Kind.UNLINK, Kind.RMDIR}
OPENS = frozenset({Kind.OPEN, Kind.CREATE})


@final
@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong with an operation.

    Attributes:
        name: for tables.
        error: number of the error; -1: a write writes only its first half.
        kinds: of operations that it can befall.
        lasting: whether all later operations of these kinds fail, too.
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
@dataclasses.dataclass(frozen=True)
class Watch:
    """What the shim is to do.

    Attributes:
        folder: absolute, without links; operations in it are counted and written down.
        log: file for them, outside.
        fail_at: number of the operation, from 0, that fails; -1 for none.
        fault: how.
    """

    folder: Path
    log: Path
    fail_at: int = -1
    fault: Fault | None = None

    def arguments(self) -> list[Any]:
        """Those of `disk_shim_watch`, which JSON may carry."""
        kinds = sum(1 << kind for kind in self.fault.kinds) if self.fault else 0
        error, lasting = (self.fault.error, self.fault.lasting) if self.fault else (0, False)
        return [str(self.folder), str(self.log), self.fail_at, kinds, error, int(lasting)]


@final
@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation, as it was done.

    Attributes:
        kind: what it was.
        error: the error that it ended with; 0 for none.
        path: absolute; of a mark its text.
        target: of a rename or an exchange, the second path.
        offset: of a write, where; of a truncation, the length.
        data: of a write, what was written.
    """

    kind: Kind
    error: int
    path: str
    target: str
    offset: int
    data: bytes


_HEADER = struct.Struct("<iiqqqq")


def operations(log: Path) -> Iterator[Operation]:
    """What is in a log, in order."""
    content, place = log.read_bytes(), 0

    def take(length: int) -> bytes:
        nonlocal place
        place += length
        return content[place - length : place]

    while place < len(content):
        kind, error, offset, *lengths = _HEADER.unpack(take(_HEADER.size))
        path, target, data = map(take, lengths)
        yield Operation(Kind(kind), error, os.fsdecode(path), os.fsdecode(target), offset, data)


def counted(log: Path) -> list[Operation]:
    """The operations of a log that have a number, by it."""
    return [one for one in operations(log) if one.kind is not Kind.MARK]


def lacking() -> str | None:
    """What the shim would need and this machine does not have; None if nothing."""
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
