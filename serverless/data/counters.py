"""What a server has carried."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass
class DataCounters:
    """Counts since the server was made. Bytes are those of tensors, without headers.

    Attributes:
        bytes_sent: to workers, chunks that were sent again included.
        bytes_received: from workers, likewise; of puts that are late or twice only what came before that was known.
        gets: names that were asked for and found.
        puts: that were delivered.
        late: puts that nobody waits for (any more).
        duplicates: puts of what another had put before.
        refused: peers and messages that were turned away.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    gets: int = 0
    puts: int = 0
    late: int = 0
    duplicates: int = 0
    refused: int = 0
