"""Whether an array can be held at all: asked before its memory is taken."""

from __future__ import annotations

from dorylax.graph.validate import GraphError
from dorylax.machine import memory_limit


def gibibytes(size: int) -> str:
    """A size in GiB, for messages."""
    return f"{size / 2**30:,.1f} GiB"


def check_room(what: str, size: int) -> None:
    """Passes for what the whole memory of the machine, or of the process' control group, could hold.

    Args:
        what: for the message, which continues with "takes … GiB of memory"; may be empty.
        size: bytes.

    Raises:
        GraphError: it is more.
    """
    limit = memory_limit()
    if limit is not None and size > limit.bytes:
        holder = "this machine" if limit.source == "machine" else "this process' control group"
        raise GraphError(
            f"{what}{' ' * bool(what)}takes {gibibytes(size)} of memory, and {holder} has {gibibytes(limit.bytes)}"
        )
