"""Whole messages of the data plane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dorylax.serverless.wire.frames import Buffer, Header, decode_header, decode_tensors

LARGE = 1 << 30


def decode(message: Sequence[Buffer], max_bytes: int = LARGE) -> tuple[Header, tuple[np.ndarray, ...]]:
    """The header and the tensors of a message."""
    header = decode_header(message[0])
    return header, decode_tensors(header, message[1:], max_bytes)
