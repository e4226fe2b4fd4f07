"""Sizes of a data set, which determine its memory, abstract data of these sizes, and a description that identifies it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, final

import jax
import numpy as np

from dorylax.aligned import ALIGNMENT
from dorylax.graph.compressed import Adjacency, SelfLoops
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.labels import Kind, kind_of
from dorylax.graph.mapped import mapping_of
from dorylax.graph.rows import BySlot, edge_ids_fit


@dataclasses.dataclass(frozen=True)
class Size:
    """V vertices, E directed edges, F features and C classes of a data set."""

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int


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
    of_task: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """Kind of the labels."""
        return kind_of(self.num_classes, multilabel=self.multilabel)


Origin = Literal["generated", "archive", "published"]
"""How it comes into memory: drawn by `communities`, read from an npz archive, made from published files."""
Storage = Literal["mapped", "aligned", "elsewhere"]
"""How arrays lie in memory: mapped from an archive; where XLA takes them as they are (`dorylax.aligned`); or where it
copies them."""


@final
@dataclasses.dataclass(frozen=True)
class InputShape:
    """A further input of the model: the keyword that it reaches the model as, and the rows that it has."""

    name: str
    space: Literal["vertex", "edge"]
    row: tuple[int, ...]
    dtype: str

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return math.prod(self.row) * np.dtype(self.dtype).itemsize


@final
@dataclasses.dataclass(frozen=True)
class DataShape:
    """The sizes of a data set.

    Attributes:
        num_vertices, num_edges, num_features: V, E (directed edges), F.
        num_classes: C; None for targets.
        symmetric: Whether both directions share their rows.
        self_loops: As `Graph.self_loops`.
        multilabel: Whether labels are `[V, C]`.
        targets: Shape of a row of targets.
        further: Further inputs per vertex and per edge.
        reordered: Whether the graph carries `vertex_ids` already, and `edge_order` if edge ids are read.
        own_edge_order: Whether it carries an `edge_order` although it was not reordered, because edges came neither in
            order of their targets nor of their sources.
        own_edge_ids: Whether its edges' ids are other than 0 … E-1, as after `symmetrise`.
        edge_ids: Whether the model reads edge ids; see `Graph.without_edge_ids`.
        origin: Origin of the arrays.
        features_in, graph_in: Memory of features and of the graph's rows once they are loaded.
        num_labelled: Number of training vertices, if an archive states it.
        stored_bytes: Bytes of stored forms that loading converts, in addition to the result.
    """

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int | None
    symmetric: bool = True
    self_loops: SelfLoops = "some"
    multilabel: bool = False
    targets: tuple[int, ...] = ()
    further: tuple[InputShape, ...] = ()
    reordered: bool = False
    own_edge_order: bool = False
    own_edge_ids: bool = False
    edge_ids: bool = True
    origin: Origin = "archive"
    features_in: Storage = "elsewhere"
    graph_in: Storage = "elsewhere"
    num_labelled: int | None = None
    stored_bytes: int = 0

    @classmethod
    def of(cls, data: Dataset) -> DataShape:
        """The shape of a loaded data set."""
        return cls(
            int(data.graph.num_vertices),
            int(data.graph.num_edges),
            data.num_features,
            data.num_classes,
            symmetric=data.graph.symmetric,
            self_loops=data.graph.self_loops,
            multilabel=data.multilabel,
            targets=data.labels.shape[1:] if data.num_classes is None else (),
            further=(*_inputs("vertex", data.vertex_inputs), *_inputs("edge", data.edge_inputs)),
            reordered=data.graph.vertex_ids is not None,
            own_edge_order=not isinstance(data.graph.placed, str),
            own_edge_ids=data.graph.edge_ids_fit and data.graph.edge_ids is not None,
            features_in=_storage(data.features),
            graph_in=_storage(data.graph.incoming.neighbours),
        )

    @property
    def label_row(self) -> tuple[int, ...]:
        """Shape of a row of the labels."""
        return self.targets if self.num_classes is None else (self.num_classes,) if self.multilabel else ()

    @property
    def edge_ids_fit(self) -> bool:
        """As `Graph.edge_ids_fit` of the graph that is trained on."""
        return self.edge_ids and edge_ids_fit(self.num_edges)

    def storage(self, kind: str) -> Storage:
        """Memory of the loaded arrays of a kind of `copy`. Labels count as features, being as rare."""
        if kind == "graph":
            return self.graph_in
        return self.features_in if kind in ("features", "labels") else "elsewhere"

    def copy(self, *, reordered: bool | None = None) -> dict[str, int]:
        """Bytes of one copy of the data set by kind of array, none of them 0. `reordered` overrides the attribute."""
        V, E = self.num_vertices, self.num_edges
        ids = self.reordered if reordered is None else reordered
        kinds = {
            "features": 4 * V * self.num_features,
            "graph": 8 * (V + 1) + 4 * E,
            "reversed graph": 0 if self.symmetric else 8 * (V + 1) + 4 * E,
            "order of reversed edges": 4 * E if self.edge_ids_fit else 0,
            "vertex ids": 4 * V if ids else 0,
            "edge ids": 4 * E if self.own_edge_ids and self.edge_ids_fit else 0,
            "edge order": 4 * E if (ids or self.own_edge_order) and self.edge_ids_fit else 0,
            "labels": 4 * V * math.prod(self.label_row),
            "masks": 3 * V,
            "vertex inputs": V * sum(entry.row_bytes for entry in self.further if entry.space == "vertex"),
            "edge inputs": E * sum(entry.row_bytes for entry in self.further if entry.space == "edge"),
        }
        return {name: size for name, size in kinds.items() if size}


def _inputs(space: Literal["vertex", "edge"], given: Mapping[str, np.ndarray]) -> list[InputShape]:
    return [InputShape(name, space, array.shape[1:], array.dtype.name) for name, array in given.items()]


def _storage(array: np.ndarray) -> Storage:
    if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
        return "elsewhere"
    return "aligned" if mapping_of(array) is None else "mapped"


def abstract_data(shape: DataShape, *, reordered: bool | None = None) -> AbstractData:
    """Shapes in the place of arrays, as they are inside JAX. `reordered` overrides the attribute of the shape."""
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
        placed=BySlot(array(np.int32, E)) if (ids or shape.own_edge_order) and shape.edge_ids_fit else "source",
        edge_ids=array(np.int32, E) if shape.own_edge_ids and shape.edge_ids_fit else None,
        edge_data=None,
        without_edge_ids=not shape.edge_ids_fit,
    )
    classes = shape.num_classes is not None and not shape.multilabel
    further: dict[str, dict[str, Any]] = {"vertex": {}, "edge": {}}
    for entry in shape.further:
        further[entry.space][entry.name] = array(entry.dtype, V if entry.space == "vertex" else E, *entry.row)
    return AbstractData(
        graph,
        array(np.float32, V, shape.num_features),
        array(np.int32 if classes else np.float32, V, *shape.label_row),
        shape.num_features,
        shape.num_classes,
        shape.multilabel,
        further["vertex"],
        further["edge"],
    )


_SAMPLE_BYTES = 2**20


def describe_data(data: Dataset) -> dict[str, Any]:
    """Sizes and digests, as JSON values; `inputs` holds those of further inputs."""
    split = hashlib.sha256()
    for array in (data.labels, data.train_mask, data.val_mask, data.test_mask):
        split.update(np.ascontiguousarray(array).tobytes())
    return {
        "name": data.name,
        "vertices": data.graph.num_vertices,
        "edges": data.graph.num_edges,
        "features": data.num_features,
        "classes": data.num_classes,
        **({"multilabel": True} if data.multilabel else {}),
        **({"targets": data.labels.shape[1]} if data.num_classes is None and data.labels.ndim == 2 else {}),
        **({} if data.class_names is None else {"class_names": data.class_names.tolist()}),
        "labels_and_masks": split.hexdigest()[:16],
        "graph": _digest(data.graph.incoming.offsets, data.graph.incoming.neighbours),
        "feature_values": _digest(data.features),
        "inputs": {name: _digest(array) for name, array in {**data.vertex_inputs, **data.edge_inputs}.items()},
    }


def _digest(*arrays: Any) -> str:
    """Of shapes, dtypes and contents; of a large array, about a megabyte of elements evenly spread over it."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        step = -(-array.nbytes // _SAMPLE_BYTES) or 1
        while array.ndim and step > 1 and math.gcd(step, array.shape[-1]) > 1:  # else it would miss whole columns
            step += 1
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array.reshape(-1)[::step]).tobytes())
    return digest.hexdigest()[:16]
