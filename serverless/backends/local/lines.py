"""What a worker and its pool say to each other: events and answers, each as one line of base64.

Base64, because an event comes from elsewhere and may be anything: a damaged one must reach the handler, which refuses it,
and must not break the lines.
"""

from __future__ import annotations

import base64
import binascii

READY = b"dorylax worker is ready\n"
"""The first line of a worker that can take events; lines before it are what others print."""


def line_of(content: bytes) -> bytes:
    """An event or an answer as a line."""
    return base64.b64encode(content) + b"\n"


def content_of(line: bytes) -> bytes:
    """The event or answer of a line, with or without its newline.

    Raises:
        ValueError: it is not base64.
    """
    try:
        return base64.b64decode(line.removesuffix(b"\n"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a line must be base64, got {line[:40]!r}: {error}") from None
