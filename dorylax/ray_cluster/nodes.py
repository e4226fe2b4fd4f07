"""The nodes of a Ray cluster, and how they are put into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Node(NamedTuple):
    """A node of a cluster.

    Attributes:
        address: by which others find it.
        resources: that it has, by name.
    """

    address: str
    resources: Mapping[str, float]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Node:
        """One of `ray.nodes()`."""
        return cls(found["NodeManagerAddress"], found["Resources"])

    @property
    def cpus(self) -> int:
        """Its CPUs."""
        return int(self.resources.get("CPU", 0))

    def __str__(self) -> str:
        """Its address, CPUs and memory, and resources of the user's own."""
        own = [
            name for name in self.resources if name not in ("CPU", "memory", "object_store_memory") and ":" not in name
        ]
        memory = self.resources.get("memory", 0) / 2**30
        return ", ".join([f"{self.address} with {self.cpus} CPUs", f"{memory:.1f} GiB", *own])


def nodes_of(ray: Any) -> list[Node]:
    """The nodes that live.

    Args:
        ray: the module, connected.
    """
    return [Node.of(found) for found in ray.nodes() if found["Alive"]]


def described(nodes: Sequence[Node]) -> str:
    """What a cluster has, in words."""
    return f"it has {'; '.join(map(str, nodes))}" if nodes else "it has no node"
