"""How large a data set is: all that its memory depends on, known without its data."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import jax
import numpy as np

from dorylax.aligned import ALIGNMENT
from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Adjacency, Graph, SelfLoops
from dorylax.graph.mapped import mapping_of
from dorylax.graph.transpose import edge_ids_fit

Origin = Literal["generated", "archive", "published"]
"""How it comes into memory: drawn by `communities`, read from an npz archive, made from published files."""
Storage = Literal["mapped", "aligned", "elsewhere"]
"""How arrays lie in memory: mapped from an archive; where XLA takes them as they are (`dorylax.aligned`); or where it
copies them."""


@final
@dataclasses.dataclass(frozen=True)
class DataShape:
    """The sizes of a data set.

    Attributes:
        num_vertices: V.
        num_edges: E, directed edges.
        num_features: F.
        num_classes: C.
        symmetric: whether both directions share their rows.
        self_loops: as `Graph.self_loops`.
        multilabel: whether labels are `[V, C]`.
        reordered: whether the graph carries `vertex_ids` already, and `edge_ids` if they are read.
        edge_ids: whether the model reads edge ids; see `Graph.without_edge_ids`.
        origin: how it is loaded.
        features_in: how features lie once they are loaded.
        graph_in: how the graph's rows lie.
        stored_bytes: what loading holds besides the result's own arrays: stored forms that have to be converted.
    """

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int | None
    symmetric: bool = True
    self_loops: SelfLoops = "some"
    multilabel: bool = False
    reordered: bool = False
    edge_ids: bool = True
    origin: Origin = "archive"
    features_in: Storage = "elsewhere"
    graph_in: Storage = "elsewhere"
    stored_bytes: int = 0

    @classmethod
    def of(cls, data: Dataset) -> DataShape:
        """That of a data set that is there."""
        return cls(
            int(data.graph.num_vertices),
            int(data.graph.num_edges),
            data.num_features,
            data.num_classes,
            symmetric=data.graph.symmetric,
            self_loops=data.graph.self_loops,
            multilabel=data.multilabel,
            reordered=data.graph.vertex_ids is not None,
            features_in=_storage(data.features),
            graph_in=_storage(data.graph.incoming.neighbours),
        )

    @property
    def edge_ids_fit(self) -> bool:
        """As `Graph.edge_ids_fit` of the graph that is trained on."""
        return self.edge_ids and edge_ids_fit(self.num_edges)

    def storage(self, kind: str) -> Storage:
        """How the loaded arrays of a kind lie; kinds are those of `copy`. Labels count as features, being as rare."""
        if kind == "graph":
            return self.graph_in
        return self.features_in if kind in ("features", "labels") else "elsewhere"

    def copy(self, *, reordered: bool | None = None) -> dict[str, int]:
        """Bytes of one copy of the data set by kind of array, none of them 0.

        Args:
            reordered: whether the graph carries ids; by default as it is.
        """
        V, E = self.num_vertices, self.num_edges
        ids = self.reordered if reordered is None else reordered
        kinds = {
            "features": 4 * V * self.num_features,
            "graph": 8 * (V + 1) + 4 * E,
            "reversed graph": 0 if self.symmetric else 8 * (V + 1) + 4 * E,
            "order of reversed edges": 4 * E if self.edge_ids_fit else 0,
            "vertex ids": 4 * V if ids else 0,
            "edge ids": 4 * E if ids and self.edge_ids_fit else 0,
            "labels": 4 * V * ((self.num_classes or 1) if self.multilabel else 1),
            "masks": 3 * V,
        }
        return {name: size for name, size in kinds.items() if size}


def _storage(array: np.ndarray) -> Storage:
    if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
        return "elsewhere"
    return "aligned" if mapping_of(array) is None else "mapped"


def abstract_data(shape: DataShape, *, reordered: bool | None = None) -> AbstractData:
    """Shapes in the place of arrays, as they are inside JAX.

    Args:
        shape: the sizes.
        reordered: whether the graph carries ids; by default as it is.
    """
    V, E = shape.num_vertices, shape.num_edges
    ids = shape.reordered if reordered is None else reordered

    def array(dtype: Any, *axes: int) -> Any:
        return jax.ShapeDtypeStruct(axes, dtype)

    rows = array(np.uint32, V + 1, 2), array(np.int32, E)
    edges = array(np.int32, E) if shape.edge_ids_fit else None
    graph = Graph(
        *rows,
        outgoing=Adjacency(*rows, edges),
        symmetric=shape.symmetric,
        self_loops=shape.self_loops,
        vertex_ids=array(np.int32, V) if ids else None,
        edge_ids=array(np.int32, E) if ids and shape.edge_ids_fit else None,
        without_edge_ids=not shape.edge_ids_fit,
    )
    labels = array(np.float32, V, shape.num_classes or 1) if shape.multilabel else array(np.int32, V)
    features = array(np.float32, V, shape.num_features)
    return AbstractData(graph, features, labels, shape.num_features, shape.num_classes, shape.multilabel, {}, {})
