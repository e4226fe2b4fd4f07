"""Names of the files of partitions and shards, which lie in one folder."""

from __future__ import annotations

import re

from dorylax.graph.manifest import MANIFEST

SUMMARY = "shards.json"
"""Summary of the shards."""
OLD_PARTITION = ("partition.json", "parts.npy")
"""Files of a partition of an earlier version."""
RECORDS = (SUMMARY, MANIFEST)
"""Files that are stored last: they say that all others are there."""

_OURS = re.compile(r"shards\.json|server-\d+(\.npz)?")


def shard_name(server: int) -> str:
    """Return the name of a server's folder."""
    return f"server-{server}"


def is_of_shards(name: str) -> bool:
    """Whether shards have a file or folder of this name."""
    return _OURS.fullmatch(name) is not None
