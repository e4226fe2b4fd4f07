"""What a graph server in another process does for checkpoints: it writes and reads its own part, where the driver says.

A trial, before training, shows whether it will find the place: it may be on another machine. What goes wrong there is
answered as a text, since it is the driver that tells the user.
"""

from __future__ import annotations

import contextlib

import numpy as np

from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.saved import part_name, save_buffers
from dorylax.runs.checkpoint import CheckpointError
from dorylax.runs.parts import Part, read_part, write_part
from dorylax.storage.aws_errors import AwsError
from dorylax.storage.choose import open_storage


def write_buffers(server: GraphServer, place: str) -> Part | str:
    """Writes a server's buffers, which stand still; or says why they cannot be written."""
    try:
        return write_part(place, part_name(server.shard.server), save_buffers([server]))
    except (OSError, AwsError) as error:
        return str(error)


def read_buffers(part: Part) -> dict[str, np.ndarray]:
    """The buffers of a server, by name.

    Raises:
        CheckpointError: they are damaged, or cannot be read.
    """
    try:
        return read_part(part)
    except (OSError, AwsError) as error:
        raise CheckpointError(
            f"checkpoint {part.place} cannot be used ({error}): delete it to go on from the one before"
        ) from error


def seen(place: str, name: str) -> str:
    """What a file holds that the driver has written; or why it cannot be read."""
    try:
        with contextlib.closing(open_storage(place)) as storage:
            return storage.read(name).decode("utf-8", "replace")
    except (OSError, AwsError) as error:
        return str(error)
