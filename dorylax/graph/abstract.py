"""A data set of shapes, for what is traced and compiled without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dorylax.graph.graph import Graph


class AbstractData(NamedTuple):
    """Shapes (`jax.ShapeDtypeStruct`) in the place of arrays; attributes are those of `Dataset`.

    Attributes:
        graph: of shapes.
        features: float32 `[V, F]`.
        labels: int32 `[V]`, or float32 `[V, C]` or `[V, T]`.
        num_features: F.
        num_classes: C; None where labels are targets.
        multilabel: whether labels are `[V, C]`.
        vertex_inputs: name → `[V, …]`.
        edge_inputs: name → `[E, …]`.
    """

    graph: Graph
    features: Any
    labels: Any
    num_features: int
    num_classes: int | None
    multilabel: bool
    vertex_inputs: Mapping[str, Any]
    edge_inputs: Mapping[str, Any]
