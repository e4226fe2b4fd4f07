"""Whether a partition is made and cut in memory, or of an archive that stays on disk."""

from __future__ import annotations

from dorylax.errors import InputError
from dorylax.graph.data_shape import DataShape
from dorylax.graph.partition.partitioners import Method
from dorylax.graph.validate import gibibytes
from dorylax.memory.hosts import partitioning
from dorylax.memory.phases import communities

MAPPED_SHARE = 8
"""Of the memory, one part in so many is for pages of the archive."""
# Parts, orders and their inverse, labels, in-degrees and their sums, a server's numbering; and whether each vertex is a
# ghost of each server.
_VERTEX_BYTES = 64


def in_memory_bytes(shape: DataShape, *, servers: int, method: Method, ids: bool) -> int:
    """Bytes that a partition takes which is made and cut in memory; arguments as for `streams`."""
    E = shape.num_edges
    with_ids = ids and shape.edge_ids_fit
    ids_bytes = 28 * E if with_ids and (shape.reordered or not shape.symmetric) else 8 * E if with_ids else 0
    cutting = ids_bytes + _shard_bytes(shape, servers)
    return sum(shape.copy().values()) + max(partitioning(shape, method, servers), communities(shape), cutting)


def _shard_bytes(shape: DataShape, servers: int) -> int:
    return (4 * shape.num_edges + 4 * shape.num_vertices * shape.num_features) // servers


def streams(shape: DataShape, *, servers: int, method: Method, ids: bool, memory: int) -> bool:
    """Whether a data set is too large to be partitioned in memory, but not to be partitioned in a stream.

    Args:
        shape: Shape of the data set.
        servers: Number of servers.
        method: The partitioner.
        ids: Whether edge ids are wanted.
        memory: Bytes available in addition to the program.

    Raises:
        InputError: Neither fits; names the reason and the remedy.
    """
    V, E = shape.num_vertices, shape.num_edges
    if in_memory_bytes(shape, servers=servers, method=method, ids=ids) <= memory:
        return False
    if shape.origin != "archive":
        raise InputError(
            "a partition of this data set takes more than --memory, and only a folder can stay on disk: write one "
            "(Dataset.save), or give more"
        )
    held = {
        "a directed graph, whose rows by target are made in memory,": 0 if shape.graph_in == "mapped" else 24 * E,
        "features that are not float32 rows of their own": (
            0 if shape.features_in == "mapped" else 4 * V * shape.num_features
        ),
        "edge ids (--no-edge-ids leaves them out)": 28 * E if ids and shape.edge_ids_fit else 0,
        "METIS (--method ldg takes less)": partitioning(shape, method, servers) if method == "metis" else 0,
        f"{V:,} vertices": (_VERTEX_BYTES + servers) * V,
        f"a shard of {servers} (more servers have smaller ones)": _shard_bytes(shape, servers),
    }
    most = memory - memory // MAPPED_SHARE
    if sum(held.values()) > most:
        told = ", ".join(f"{what} {gibibytes(size)}" for what, size in held.items() if size)
        raise InputError(
            f"a partition in a stream takes more than the {gibibytes(most)} that --memory leaves for it: {told}"
        )
    return True
