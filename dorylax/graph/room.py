"""Whether an array can be held at all, or a file written: asked before its memory, or its place on the disk, is taken."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from dorylax.errors import named
from dorylax.graph.validate import GraphError
from dorylax.machine import memory_limit


def gibibytes(size: int) -> str:
    """A size in GiB, for messages."""
    return f"{size / 2**30:,.1f} GiB"


def check_room(what: str, size: int) -> None:
    """Passes for what the whole memory of the machine, the process' control group or its address space could hold.

    Args:
        what: for the message, which continues with "takes … GiB of memory"; may be empty.
        size: bytes.

    Raises:
        GraphError: it is more.
    """
    limit = memory_limit()
    if limit is not None and size > limit.bytes:
        raise GraphError(
            f"{what}{' ' * bool(what)}takes {gibibytes(size)} of memory, and {limit.owner} has {gibibytes(limit.bytes)}"
        )


def check_disk(path: Path, size: int) -> None:
    """Passes for a file that its disk has room for now.

    Args:
        path: of the file; its folder must be there.
        size: bytes.

    Raises:
        OSError: it has not, or there is no such folder; it names `path`.
    """
    with named(path):
        free = shutil.disk_usage(path.absolute().parent).free
    if size > free:
        raise OSError(errno.ENOSPC, f"takes {gibibytes(size)}, and its disk has {gibibytes(free)} left", str(path))
