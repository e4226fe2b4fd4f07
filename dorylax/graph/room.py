"""Whether an array can be held at all: asked before its memory is taken."""

from __future__ import annotations

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
