"""What goes wrong with partitions."""

from __future__ import annotations

from dorylax.errors import DorylaxError


class PartitionError(DorylaxError, ValueError):
    """A partition that cannot be made, read or used for a graph; the message says what to do instead."""
