"""The protocol between servers and workers. Every message has the format of `dorylax.serverless.wire.frames`.

The bytes of all tensors are concatenated and cut into *chunks*; a chunk has pieces with checksums (`chunks`). The worker
chooses the number `transfer`, and every reply repeats it.

**Get.** The worker counts chunks; the server is stateless, so a dead worker needs no cleanup.

    worker                                            server
    get {transfer, name, offer: 0, first: 0, count}   layout {transfer, offer, chunk_bytes, credit, tensors}
                                                      chunk {transfer, index} …, `count` of them, at most `credit`
    get {transfer, name, offer, first, count: 1}      chunk {transfer, index}            for each one that came
                                                      absent {transfer}                  no such name, or offered anew

Each further `get` is a credit, which bounds the chunks in flight. The worker requests a damaged chunk again.

**Put.** The first message includes the first chunk, so small arrays need one message each way.

    put {transfer, name, chunk_bytes, tensors} + chunk 0     grant {transfer, until}     chunks below may come
    chunk {transfer, index} …                                again {transfer, index}     it came damaged
                                                             done {transfer, state}      accepted, duplicate or late

For both, `refused {transfer, reason}` is final, while `damaged {}` and `unknown {transfer}` ask for a repeat. The server
writes transfer 0 if the request's number is unreadable.
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
"""Default size of a chunk: large enough to amortize its header, small enough for fair queues."""

MIN_CHUNK_BYTES = 1 << 10
MAX_CHUNK_BYTES = 1 << 22

MAX_FRAME_BYTES = MAX_CHUNK_BYTES
"""Limit of a frame; ZeroMQ disconnects peers with longer ones before it allocates memory."""

CREDIT = 8
"""Default limit of chunks in flight."""

MAX_BYTES = 1 << 30
"""Default limit of one transfer in bytes."""

MAX_NAME = 256
"""Limit of a name in characters."""

USER = b"dorylax"
"""The user name of workers over ipc; the token is the password."""


def check_limits(chunk_bytes: int, credit: int, max_bytes: int) -> None:
    """Raise ValueError if a limit is out of range."""
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES:
        raise ValueError(f"chunk_bytes must be from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}, got {chunk_bytes}")
    if credit < 1:
        raise ValueError(f"credit must be at least 1 chunk, got {credit}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
