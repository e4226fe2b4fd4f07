"""Graphs and data sets. `dorylax.graph.datasets` loads named data sets.

Names load on first use, so that the settings of a partition (`dorylax.graph.partition.partitioners`) are read without JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylax.graph.compressed import Adjacency, in_degrees, out_degrees
    from dorylax.graph.dataset import Dataset
    from dorylax.graph.graph import Graph
    from dorylax.graph.link_splits import Links, LinkSplit, link_split
    from dorylax.graph.many import merge_graphs
    from dorylax.graph.splits import Split, per_class_split, public_split, random_split, stratified_split
    from dorylax.graph.validate import GraphError

_NAMES = {
    "compressed": ("Adjacency", "in_degrees", "out_degrees"),
    "dataset": ("Dataset",),
    "graph": ("Graph",),
    "link_splits": ("Links", "LinkSplit", "link_split"),
    "many": ("merge_graphs",),
    "splits": ("Split", "per_class_split", "public_split", "random_split", "stratified_split"),
    "validate": ("GraphError",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Adjacency",
    "Dataset",
    "Graph",
    "GraphError",
    "LinkSplit",
    "Links",
    "Split",
    "in_degrees",
    "link_split",
    "merge_graphs",
    "out_degrees",
    "per_class_split",
    "public_split",
    "random_split",
    "stratified_split",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
