"""Spreading a graph over servers: partitions, their cost, and the order of rows that follows from them, without JAX."""

from dorylax.errors import InputError as PartitionError
from dorylax.graph.partition.base import Partition, graph_digest
from dorylax.graph.partition.layout import Layout, lay_out
from dorylax.graph.partition.locality import cached_locality_order, locality_order
from dorylax.graph.partition.partitioners import Method, partition
from dorylax.graph.partition.quality import PartitionReport, report
from dorylax.graph.partition.simple import Balance

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
