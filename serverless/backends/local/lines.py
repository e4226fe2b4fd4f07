"""Line protocol between a worker and its pool: each `Event` or `Answer` is one line of base64.

Events come from other processes and may be damaged. Base64 lets a damaged event reach the handler, which refuses it,
without breaking the lines.
"""

from __future__ import annotations

import base64
import binascii

READY = b"dorylax worker is ready\n"
"""Line that marks a worker as ready. Libraries may print other lines before it."""


def line_of(content: bytes) -> bytes:
    """Encode the bytes of an `Event` or an `Answer` as a line."""
    return base64.b64encode(content) + b"\n"


def content_of(line: bytes) -> bytes:
    """Decode a line, with or without its newline.

    Raises:
        ValueError: If the line is not base64.
    """
    try:
        return base64.b64decode(line.removesuffix(b"\n"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a line must be base64, got {line[:40]!r}: {error}") from None
