"""What a server has carried."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass
class DataCounters:
    """Counts since the server was made. Bytes are those of tensors, without headers.

    Attributes:
        bytes_sent: to workers, repeated chunks included.
        bytes_received: from workers, likewise; of late and duplicate puts only what came before that was known.
        gets: names that were asked for and found.
        puts: that were delivered.
        late: puts that nobody waits for (any longer).
        duplicates: puts of what had been put before.
        refused: peers and messages that were turned away.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    gets: int = 0
    puts: int = 0
    late: int = 0
    duplicates: int = 0
    refused: int = 0
