"""Spreading a graph over servers: partitions, what they cost, and the order of rows that follows from them.

Names load on first use: which partitioners there are (`partitioners`) is a setting, and settings are read without JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylax.graph.partition.balance import Balance
    from dorylax.graph.partition.base import Partition, graph_digest
    from dorylax.graph.partition.errors import PartitionError
    from dorylax.graph.partition.layout import Layout, lay_out
    from dorylax.graph.partition.locality import locality_order
    from dorylax.graph.partition.order_cache import cached_locality_order
    from dorylax.graph.partition.partitioners import Method, partition
    from dorylax.graph.partition.quality import PartitionReport, report

_HOMES = {
    "Balance": "balance",
    "Layout": "layout",
    "Method": "partitioners",
    "Partition": "base",
    "PartitionError": "errors",
    "PartitionReport": "quality",
    "cached_locality_order": "order_cache",
    "graph_digest": "base",
    "lay_out": "layout",
    "locality_order": "locality",
    "partition": "partitioners",
    "report": "quality",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
