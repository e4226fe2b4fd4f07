"""A data set of shapes, for what is traced and compiled without data."""

from __future__ import annotations

from typing import Any, NamedTuple

from dorylax.graph.graph import Graph


class AbstractData(NamedTuple):
    """Shapes (`jax.ShapeDtypeStruct`) in the place of arrays; attributes are those of `Dataset`.

    Attributes:
        graph: of shapes.
        features: float32 `[V, F]`.
        labels: int32 `[V]` or float32 `[V, C]`.
        num_features: F.
        num_classes: C.
    """

    graph: Graph
    features: Any
    labels: Any
    num_features: int
    num_classes: int
