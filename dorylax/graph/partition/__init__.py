"""Spreading a graph over servers: partitions, what they cost, and the order of rows that follows from them."""

from dorylax.graph.partition.base import Balance, Method, Partition, graph_digest
from dorylax.graph.partition.errors import PartitionError
from dorylax.graph.partition.kept_orders import kept_locality_order
from dorylax.graph.partition.layout import Layout, lay_out
from dorylax.graph.partition.locality import locality_order
from dorylax.graph.partition.partitioners import partition
from dorylax.graph.partition.quality import PartitionReport, report

__all__ = [
    "Balance",
    "Layout",
    "Method",
    "Partition",
    "PartitionError",
    "PartitionReport",
    "graph_digest",
    "kept_locality_order",
    "lay_out",
    "locality_order",
    "partition",
    "report",
]
