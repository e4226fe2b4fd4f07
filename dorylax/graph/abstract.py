"""A data set of shapes, for what is traced and compiled without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dorylax.graph.graph import Graph


class AbstractData(NamedTuple):
    """Shapes (`jax.ShapeDtypeStruct`) in the place of arrays; attributes are those of `Dataset`."""

    graph: Graph
    features: Any
    labels: Any
    num_features: int
    num_classes: int | None
    multilabel: bool
    vertex_inputs: Mapping[str, Any]
    edge_inputs: Mapping[str, Any]
