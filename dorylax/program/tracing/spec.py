"""Specification of data for tracing: shapes and dtypes of rows, and properties of the graph, without data or sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from dorylax.graph.compressed import SelfLoops
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.program.jaxpr.symbols import Dimensions, Space
from dorylax.program.model.base import Keywords


@final
@dataclasses.dataclass(frozen=True)
class RowSpec:
    """An array with one row per vertex or per edge.

    Args:
        space: Whether rows belong to vertices or edges.
        shape: Shape of one row: `(F,)` for features `[V, F]`, `()` for a number per row.
        dtype: A NumPy dtype or its name.
        name: Name in tables and messages.
    """

    space: Space
    shape: tuple[int, ...]
    dtype: Any = "float32"
    name: str = "x"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))

    def abstract(self, dimensions: Dimensions) -> jax.ShapeDtypeStruct:
        """Return the array's symbolic shape and dtype."""
        rows = dimensions.vertices if self.space == "vertex" else dimensions.edges
        return jax.ShapeDtypeStruct((rows, *self.shape), jax.dtypes.canonicalize_dtype(self.dtype))


@final
@dataclasses.dataclass(frozen=True)
class DataSpec:
    """Data of a model: its inputs, and the labels of its loss.

    Args:
        inputs: Positional inputs after the graph in `model(graph, *inputs)`: features, edge features, norms, ….
        labels: Labels with which the loss compares the model's output, per vertex.
        named: Keyword inputs of the model; the names are the keywords.
        self_loops: Whether no, some or all vertices have an edge to themselves (`Graph.self_loops`).
        symmetric: Whether every edge comes with its reverse (`Graph.symmetric`).
        edge_ids_fit: Whether edges have int32 ids (`Graph.edge_ids_fit`).
        num_vertices: V, for estimates only; a program runs on any size.
        num_edges: E, for estimates only.
    """

    inputs: tuple[RowSpec, ...]
    labels: RowSpec
    named: tuple[RowSpec, ...] = ()
    self_loops: SelfLoops = "some"
    symmetric: bool = False
    edge_ids_fit: bool = True
    num_vertices: int | None = None
    num_edges: int | None = None

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ValueError("DataSpec.inputs is empty: a model needs at least one array of rows, as features [V, F]")
        names: list[str] = []
        for entry in self.inputs:
            fresh = (f"{entry.name} {k}" for k in range(2, len(self.inputs) + 2))
            names.append(entry.name if entry.name not in names else next(name for name in fresh if name not in names))
        renamed = [dataclasses.replace(entry, name=name) for entry, name in zip(self.inputs, names, strict=True)]
        object.__setattr__(self, "inputs", tuple(renamed))
        keywords = [entry.name for entry in self.named]
        if twice := [name for name in keywords if keywords.count(name) > 1]:
            raise ValueError(f"DataSpec.named has {twice[0]!r} twice: a model takes one argument of a name")
        if self.labels.space != "vertex":
            raise ValueError("DataSpec.labels must have a row per vertex: a loss per edge is not supported")

    @property
    def rows(self) -> tuple[RowSpec, ...]:
        """All inputs of the model after the graph, in the order of `RunData.inputs`."""
        return (*self.inputs, *self.named)

    def call(self, rows: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Split arrays in the order of `rows` into positional arguments after the graph, and keywords."""
        count = len(self.inputs)
        names = [entry.name for entry in self.named]
        return tuple(rows[:count]), dict(zip(names, rows[count:], strict=True))

    @classmethod
    def of(cls, data: Dataset | AbstractData, keywords: Keywords | None = None) -> DataSpec:
        """Specify a data set: features, labels, and the further inputs that a model takes (none by default)."""
        further: tuple[tuple[Space, Any], ...] = (("vertex", data.vertex_inputs), ("edge", data.edge_inputs))
        there = {
            name: RowSpec(space, array.shape[1:], array.dtype, name)
            for space, arrays in further
            for name, array in arrays.items()
        }
        named = () if keywords is None else keywords.taken(there)
        return cls(
            inputs=(RowSpec("vertex", data.features.shape[1:], data.features.dtype, "features"),),
            labels=RowSpec("vertex", data.labels.shape[1:], data.labels.dtype, "labels"),
            named=tuple(there[name] for name in named),
            self_loops=data.graph.self_loops,
            symmetric=data.graph.symmetric,
            edge_ids_fit=data.graph.edge_ids_fit,
            num_vertices=int(data.graph.num_vertices),
            num_edges=int(data.graph.num_edges),
        )
