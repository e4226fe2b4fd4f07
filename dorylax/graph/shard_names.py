"""What the files of shards are called; partitions lie in the same folders."""

from __future__ import annotations

import re

SUMMARY = "shards.json"
RECORDS = (SUMMARY, "partition.json")
"""What says that everything else is there: in a storage of files they come last."""

_SHARD = re.compile(r"server-\d+\.npz")


def shard_name(server: int) -> str:
    """Of a server's file."""
    return f"server-{server}.npz"


def is_of_shards(name: str) -> bool:
    """Whether a file of this name belongs to shards."""
    return name == SUMMARY or _SHARD.fullmatch(name) is not None
