"""Counters of a data server."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass
class DataCounters:
    """Counts since the creation of the server. Bytes are those of tensors, without headers.

    Attributes:
        bytes_sent: Bytes to workers, including repeated chunks.
        bytes_received: Bytes from workers, including repeated chunks. Late and duplicate puts count up to their detection.
        gets: Successful requests for names.
        puts: Delivered puts.
        late: Puts without a receiver.
        duplicates: Puts of an already delivered name.
        refused: Refused peers and messages.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    gets: int = 0
    puts: int = 0
    late: int = 0
    duplicates: int = 0
    refused: int = 0
