"""Spreading a graph over servers: partitions, what they cost, and the order of rows that follows from them."""

from dorylax.graph.partition.base import Balance, Method, Partition, graph_digest
from dorylax.graph.partition.errors import PartitionError
from dorylax.graph.partition.layout import Layout, lay_out
from dorylax.graph.partition.locality import locality_order
from dorylax.graph.partition.order_cache import cached_locality_order
from dorylax.graph.partition.partitioners import partition
from dorylax.graph.partition.quality import PartitionReport, report

__all__ = [
    "Balance",
    "Layout",
    "Method",
    "Partition",
    "PartitionError",
    "PartitionReport",
    "cached_locality_order",
    "graph_digest",
    "lay_out",
    "locality_order",
    "partition",
    "report",
]
