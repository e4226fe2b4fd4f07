"""Checkpoint parts of graph servers in other processes, which write and read them at the driver's place.

A trial before training shows whether the server, perhaps on another machine, can reach the place. Functions return error
texts, because the driver reports them.
"""

from __future__ import annotations

import contextlib

import numpy as np

from dorylax.errors import RunError
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.saved import part_name, save_buffers
from dorylax.store.arrays import Part, read_part, write_part
from dorylax.store.places import open_storage


def write_buffers(server: GraphServer, place: str) -> Part | str:
    """Write the buffers of a paused server; return the part, or the reason of a failure."""
    try:
        return write_part(place, part_name(server.shard.server), save_buffers([server]))
    except (OSError, RunError) as error:
        return str(error)


def read_buffers(part: Part) -> dict[str, np.ndarray]:
    """Return the buffers of a server by name.

    Raises:
        RunError: The part is damaged or unreadable.
    """
    try:
        return read_part(part)
    except (OSError, RunError) as error:
        raise RunError(
            f"checkpoint {part.place} cannot be used ({error}): delete it to go on from the one before"
        ) from error


def seen(place: str, name: str) -> str:
    """Return the content of the driver's trial file, or the reason of a failure."""
    try:
        with contextlib.closing(open_storage(place)) as storage:
            return storage.read(name).decode("utf-8", "replace")
    except (OSError, RunError) as error:
        return str(error)
