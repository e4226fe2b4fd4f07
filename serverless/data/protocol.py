"""What servers and workers say to each other. Every message is one of `dorylax.serverless.wire.frames`.

Tensors travel as one run of bytes cut into *chunks*; a chunk's tensors are its pieces, each with its checksum (`chunks`).
`transfer` is a number that the worker chose, repeated in every answer.

**Get.** The worker asks and keeps count; the server remembers nothing, so a worker that dies leaves nothing behind.

    worker                                            server
    get {transfer, name, offer: 0, first: 0, count}   layout {transfer, offer, chunk_bytes, credit, tensors}
                                                      chunk {transfer, index} …, `count` of them, at most `credit`
    get {transfer, name, offer, first, count: 1}      chunk {transfer, index}            for each one that came
                                                      absent {transfer}                  no such name, or offered anew

Each further `get` is a credit: no more chunks are in flight than the worker has asked for. It asks for a damaged chunk
again.

**Put.** The first chunk comes along, so small arrays take one message each way.

    put {transfer, name, chunk_bytes, tensors} + chunk 0     grant {transfer, until}     chunks below may come
    chunk {transfer, index} …                                again {transfer, index}     it came damaged
                                                             done {transfer, state}      accepted, duplicate or late

Either way `refused {transfer, reason}` says that a repetition will not help, `damaged {}` and `unknown {transfer}` that
it will. A server that cannot tell which transfer is meant writes 0.
"""

from __future__ import annotations

GET = "get"
PUT = "put"
CHUNK = "chunk"

LAYOUT = "layout"
ABSENT = "absent"
GRANT = "grant"
AGAIN = "again"
DONE = "done"
REFUSED = "refused"
DAMAGED = "damaged"
UNKNOWN = "unknown"

ACCEPTED = "accepted"
DUPLICATE = "duplicate"
LATE = "late"

NO_TRANSFER = 0
ANY_OFFER = 0

CHUNK_BYTES = 1 << 20
"""Of a chunk, unless told otherwise: long enough that its header costs nothing, short enough to queue fairly."""

MIN_CHUNK_BYTES = 1 << 10
MAX_CHUNK_BYTES = 1 << 22

MAX_FRAME_BYTES = MAX_CHUNK_BYTES
"""ZeroMQ disconnects a peer that sends a longer frame, before it makes room for it."""

CREDIT = 8
"""Chunks in flight at a time, unless told otherwise."""

MAX_BYTES = 1 << 30
"""Of one transfer, unless told otherwise."""

MAX_NAME = 256
"""Characters of a name."""

USER = b"dorylax"
"""The user name of workers over ipc; the token is the password."""


def check_limits(chunk_bytes: int, credit: int, max_bytes: int) -> None:
    """Refuses settings that cannot work, with a ValueError."""
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES:
        raise ValueError(f"chunk_bytes must be from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}, got {chunk_bytes}")
    if credit < 1:
        raise ValueError(f"credit must be at least 1 chunk, got {credit}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
