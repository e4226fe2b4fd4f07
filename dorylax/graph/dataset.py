"""`Dataset`: a graph with features, labels and masks, checked once when it is made.

Named data sets come from `dorylax.graph.datasets`; this module handles the arrays and their names on disk
(`dorylax.graph.array_names`).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack, final

import numpy as np
import numpy.typing as npt

from dorylax.aligned import empty, rows_of
from dorylax.graph import from_libraries
from dorylax.graph.array_names import CLASS_NAMES, MASKS, ORIGINAL_IDS, VERTEX_PREFIX
from dorylax.graph.arrays import shown_names, stored_names
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.features import checked_features, inputs_of
from dorylax.graph.from_libraries import Imported, Roles, by_role, names_in
from dorylax.graph.graph import Graph
from dorylax.graph.graph_arrays import (
    check_names,
    feature_names,
    from_stored,
    graph_arrays,
    read_features,
    save_arrays,
    vertex_names,
)
from dorylax.graph.labels import Kind, Labels, checked_masks, kind_of, labelled, named_labels, stored_labels
from dorylax.graph.mapped import map_file, release
from dorylax.graph.reorder import user_order
from dorylax.graph.rows import row_spans
from dorylax.graph.splits import Split, chosen_masks
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError, as_integers, check_length, check_printable


@final
@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """A graph with data of its vertices and edges; row i of a vertex's array is the vertex in row i of the graph.

    Arrays may be NumPy of any real type, JAX or torch arrays, pandas tables and columns, SciPy sparse matrices (made
    dense) or lists; those of the right type, memory-mapped ones included, are kept as they are.

    Args:
        name: Name in reports, without control characters.
        graph: The graph, V vertices and E edges; or a SciPy sparse matrix, as for `Graph.from_scipy`.
        features: `[V, F]`, kept as float32.
        labels: The class of each vertex, integers `[V]`, -1 where it is unlabelled, or text `[V]`; or the classes as
            zeros and ones `[V, C]` (multi-label); or, of a floating type and without `num_classes`, targets `[V]` or
            `[V, T]` for a custom loss. None: the data set is for predictions only.
        num_classes: C; None takes the number of class names, one more than the largest class, or the number of columns.
            If it is given, floating labels are classes too, and must be whole.
        train_mask: The vertices whose labels train the model, at least one: bool `[V]`, zeros and ones `[V]`, or vertex
            numbers `[N]`. Without any mask all labelled vertices train.
        val_mask: The vertices that choose the epoch; may be empty, and their metric is then null.
        test_mask: The vertices that are reported on; may be empty, and their metric is then null.
        vertex_inputs: Further inputs of the model, `[V, …]` each, under their names.
        edge_inputs: Further inputs of the model, `[E, …]` each, under their names, in order of edge ids. They override
            those of the graph (`Graph.edge_data`).
        multilabel: Whether labels `[V, C]` hold any number of classes for a vertex; needed only if they never hold more
            than one.
        class_names: Names of the classes, C texts; None takes those of text or categorical labels.
        original_ids: Names of the vertices, V integers or texts, in the order in which the user gave the vertices.

    Attributes:
        labels: int32 `[V]`, or float32 `[V, C]` or `[V, T]`; -1 or NaN everywhere if there are none.
        num_classes: C; None for targets.
        multilabel: Whether labels are `[V, C]`.
        vertex_inputs: bool, int32 or float32 `[V, …]` under their names.
        edge_inputs: bool, int32 or float32 `[E, …]` under their names, those of the graph among them.
        class_names: Text `[C]`, or None.
        original_ids: Integers or UTF-8 bytes `[V]`, or None; `vertex_names` has them by row.
        kind: Kind of the labels.
        examples: "vertices", or the name of a task's examples, which labels and masks then have a row for (`of_examples`).
        of_task: Names of those `vertex_inputs` that the task makes. A model with `**kwargs` does not receive them, because
            they are missing in prediction.

    Raises:
        GraphError: An argument is of a wrong length or type, not finite, could be meant in two ways, or does not fit
            the others; one line that names it and the remedy.
    """

    name: str
    graph: Graph
    features: np.ndarray
    labels: np.ndarray
    num_classes: int | None
    train_mask: np.ndarray
    val_mask: np.ndarray
    test_mask: np.ndarray
    vertex_inputs: Mapping[str, np.ndarray]
    edge_inputs: Mapping[str, np.ndarray]
    multilabel: bool
    class_names: np.ndarray | None
    original_ids: np.ndarray | None
    kind: Kind = dataclasses.field(init=False)
    examples: str = dataclasses.field(init=False)
    of_task: tuple[str, ...] = dataclasses.field(init=False)

    def __init__(  # noqa: PLR0917  (a split is three masks, and stands in the middle)
        self,
        name: str,
        graph: Any,
        features: Any,
        labels: Any,
        num_classes: Any = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        *,
        vertex_inputs: Any = MappingProxyType({}),
        edge_inputs: Any = MappingProxyType({}),
        multilabel: bool | None = None,
        class_names: Any = None,
        original_ids: Any = None,
    ) -> None:
        check_printable("the data set's name", name)
        if hasattr(graph, "tocoo"):
            graph = Graph.from_scipy(graph)
        elif not isinstance(graph, CompressedGraph):
            raise GraphError(
                f"graph must be a dorylax.Graph or a SciPy sparse matrix, got {type(graph).__name__}: Graph.from_coo and "
                "its like make one; dorylax.load takes PyG, DGL and networkx graphs"
            )
        num_vertices = graph.num_vertices
        if isinstance(labels, Labels):  # checked
            found = labels
        else:
            found = named_labels(labels, num_vertices, num_classes, multilabel, class_names)
        ids = None if original_ids is None else stored_names("original_ids", original_ids)
        if ids is not None:
            check_length("original_ids", ids, num_vertices, "one per vertex")
        vertex_inputs, edge_inputs = inputs_of(graph, vertex_inputs, edge_inputs)
        masks = checked_masks(dict(zip(MASKS, (train_mask, val_mask, test_mask), strict=True)), found.array)
        # A frozen class refuses assignments.
        self.__dict__.update(
            name=name,
            graph=graph,
            features=checked_features(features, num_vertices),
            labels=found.array,
            num_classes=found.num_classes,
            multilabel=found.multilabel,
            class_names=found.class_names,
            original_ids=ids,
            vertex_inputs=vertex_inputs,
            edge_inputs=edge_inputs,
            kind=kind_of(found.num_classes, multilabel=found.multilabel),
            examples="vertices",
            of_task=(),
            **masks,
        )

    def of_examples(self, examples: str, **changes: Any) -> Dataset:
        """The data of a task whose examples are not vertices.

        Args:
            examples: Name of the examples in messages, a plural.
            changes: The attributes that differ, unchecked: labels and masks with a row per example, `kind`, `of_task`, ….
        """
        found = copy.copy(self)
        found.__dict__.update(examples=examples, original_ids=None, **changes)
        return found

    @property
    def num_features(self) -> int:
        """F, the width of the features."""
        return int(self.features.shape[1])

    @property
    def vertex_names(self) -> np.ndarray | None:
        """Name of the vertex in each row, integers or text `[V]`; None where `graph.vertex_ids` are the names."""
        if self.original_ids is None:
            return None
        ids = self.graph.vertex_ids
        return shown_names(self.original_ids if ids is None else self.original_ids[ids])

    def row_normalised(self, file: Path | None = None) -> Dataset:
        """With each row of the features divided by its sum, or by 1 if that is less: rows without features stay zero.

        This is PyTorch Geometric's `NormalizeFeatures`, less the shift of negative features. The new features are
        written to `file` and mapped from it, or held in memory.
        """
        if file is None:
            scaled = _normalised(self.features, empty(self.features.shape, np.float32))
        else:
            with file.open("wb") as out:
                for start, stop in row_spans(self.features):
                    out.write(_normalised(self.features[start:stop]).data)
            scaled = map_file(file, np.dtype(np.float32), self.features.shape)
        return dataclasses.replace(self, features=scaled)

    def standardised(self, like: Dataset | None = None) -> Dataset:
        """With the mean of each column of the features subtracted, and the rest divided by its standard deviation.

        A constant column is only shifted. The means and deviations are those of `like`, for example of the data that a
        model was trained on, or else of this data set. Raises a GraphError if `like` has features of another width.
        """
        known = self if like is None else like
        if known.num_features != self.num_features:
            raise GraphError(
                f"{known.name} has {known.num_features} features per vertex, and {self.name} {self.num_features}: "
                "standardise by data of the same features"
            )
        mean, deviation = (count(known.features, axis=0, dtype=np.float64) for count in (np.mean, np.std))
        varies = known.features.min(axis=0) < known.features.max(axis=0)
        scaled = np.subtract(self.features, mean, out=empty(self.features.shape, np.float32))
        scaled /= np.where(varies, deviation, 1)
        return dataclasses.replace(self, features=scaled)

    def reorder(self, order: npt.ArrayLike) -> Dataset:
        """Permutes graph and vertices' arrays: row `order[i]` moves to row i; see `Graph.reorder`.

        Arrays of edges stay as they are: they are in order of edge ids, which edges keep.
        """
        order = as_integers("order", order)
        graph = self.graph.reorder(order)
        rows: dict[str, Any] = {name: rows_of(getattr(self, name), order) for name in ("features", "labels", *MASKS)}
        further = {name: rows_of(array, order) for name, array in self.vertex_inputs.items()}
        return dataclasses.replace(self, graph=graph, vertex_inputs=further, **rows)

    def with_split(self, split: Split) -> Dataset:
        """With other masks, as the functions of `dorylax.graph.splits` make them."""
        return dataclasses.replace(self, **split._asdict())

    def release(self) -> None:
        """Gives resident pages of memory-mapped arrays back to the system; the next read brings them in again."""
        release(*arrays_of(self))

    @staticmethod
    def from_folder(
        path: str | PathLike[str],
        *,
        split: int | None = None,
        split_seed: int = 0,
        verify: bool = True,
        known: Labels | None = None,
    ) -> Dataset:
        """Read a folder that `save` or a command wrote, or an old `.npz` archive.

        Args:
            path: Path of the folder (`dorylax.graph.array_names` describes its arrays).
            split: Which split, 0 … K-1, if masks are `[V, K]` or `[K, V]`.
            split_seed: Seed of the split (60 % / 20 % / 20 %, by class) if there are no masks. With a `train_mask`
                alone the other masks are empty.
            verify: Whether to compare arrays with their checksums; memory-mapped ones are compared once per state.
            known: Labels that a model was trained on, for predictions: labels may be missing, and classes are numbered
                as in `known`.

        Raises:
            FileNotFoundError: There is no such folder or file.
            GraphError: It is something else, is damaged, arrays are missing, or they do not make a data set.
        """
        with open_arrays(path, verify=verify) as stored:
            try:
                stored.require(*feature_names(stored), *(("labels",) if known is None else ()))
            except GraphError as error:
                told = f"{error}. Without features and labels it is only a graph: Graph.from_folder reads it"
                raise GraphError(told) from error
            check_names(stored)
            name = str(stored.fetch("name")) if "name" in stored else Path(fspath(path)).name.removesuffix(".npz")
            graph = from_stored(Graph, stored)
            labels = stored_labels(stored, graph.num_vertices, known)
            masks: dict[str, Any] = {name: stored.fetch(name) for name in MASKS if name in stored}
            masks = chosen_masks(name, masks, labels.array, split=split, seed=split_seed, ids=graph.vertex_ids)
            if known is not None and not labelled(labels.array).any():
                masks = {}
            return Dataset(
                name,
                graph,
                read_features(stored),
                labels,
                original_ids=stored.fetch(ORIGINAL_IDS) if ORIGINAL_IDS in stored else None,
                vertex_inputs={name: stored.fetch(array) for name, array in vertex_names(stored).items()},
                **masks,
            )

    from_npz = from_folder  # the name for old archives, for one release

    @staticmethod
    def from_pyg(data: Any, name: str = "pyg", **roles: Unpack[Roles]) -> Dataset:
        """Of a homogeneous `torch_geometric.data.Data`.

        Its masks are masks. Other values per node become `vertex_inputs`, and values per edge `edge_inputs`.

        Args:
            data: Data with an `edge_index`; column k is edge k.
            name: Name of the data set in reports.
            roles: Keywords that say which values have which role:
                `features`: Name of a value per node ("x"), a list of names (columns side by side), or an array; None: all
                other values per node.
                `labels`: Name ("y"), names or array as for `features`; None for no labels.
                `num_classes`, `multilabel`: As in `Dataset`.
                `split`: Which split, 0 … K-1, if masks are `[V, K]` or `[K, V]`.
                `split_seed`: Seed of the split (60 % / 20 % / 20 %, by class) of data without masks, which is logged.
                `ignore`: Names to skip. Values of the whole graph must be among them.

        Raises:
            GraphError: A value fits nowhere in a data set and is not ignored; or as `Graph.from_pyg` and `Dataset`.
        """
        chosen: Roles = {"features": "x", "labels": "y", **roles}
        per_node = (*names_in(chosen["features"]), *names_in(chosen["labels"]))
        read = from_libraries.pyg(Graph, data, ignore=roles.get("ignore", ()), per_node=per_node)
        return _of_roles(name, read, chosen)

    @staticmethod
    def from_dgl(graph: Any, name: str = "dgl", **roles: Unpack[Roles]) -> Dataset:
        """Of a homogeneous `dgl.DGLGraph`, by its `ndata` and `edata`; arguments and errors as in `from_pyg`.

        By default `features="feat"` and `labels="label"`.
        """
        read = from_libraries.dgl(Graph, graph, ignore=roles.get("ignore", ()))
        return _of_roles(name, read, {"features": "feat", "labels": "label", **roles})

    @staticmethod
    def from_networkx(
        graph: Any, name: str = "networkx", *, nodes: Sequence[Hashable] | None = None, **roles: Unpack[Roles]
    ) -> Dataset:
        """Of a networkx graph, by the attributes of its nodes and edges; `nodes` as in `Graph.from_networkx`.

        Other arguments and errors as in `from_pyg`; by default all attributes of nodes but `labels="label"` are features.
        Nodes other than 0 … V-1 become `original_ids`.
        """
        read = from_libraries.networkx(Graph, graph, nodes, ignore=roles.get("ignore", ()))
        return _of_roles(name, read, {"labels": "label", **roles})

    @staticmethod
    def from_dataframes(
        vertices: Any,
        edges: Any,
        name: str = "dataframes",
        *,
        key: Hashable = None,
        source: Hashable | None = None,
        target: Hashable | None = None,
        **roles: Unpack[Roles],
    ) -> Dataset:
        """Of two pandas tables, a row per vertex and a row per edge. Other columns of edges are `edge_inputs`.

        Args:
            vertices: V rows.
            edges: E rows; row k is edge k.
            name: Name of the data set in reports.
            key: The column of `vertices` that sources and targets refer to, which becomes `original_ids`; None if these
                are row numbers.
            source: Column of the sources; None takes `source`, `src`, `from` or `u`.
            target: Column of the targets; None takes `target`, `dst`, `to` or `v`.
            roles: As for `from_pyg`, by columns of `vertices`, and columns of either table to ignore. By default
                `labels="label"`, and all others are features.

        Raises:
            GraphError: There is no such column, an edge names no vertex, or as `from_pyg`.
        """
        options = {"key": key, "source": source, "target": target}
        read = from_libraries.dataframes(Graph, vertices, edges, **options, ignore=roles.get("ignore", ()))
        return _of_roles(name, read, {"labels": "label", **roles})

    def __repr__(self) -> str:
        graph, kinds = self.graph, self.num_classes
        targets = self.labels.shape[1] if self.labels.ndim == 2 else 1
        labels = f"{targets} targets" if kinds is None else f"{kinds} {'labels' if self.multilabel else 'classes'}"
        labels = labels if labelled(self.labels).any() else "no labels"
        masks = [f"{getattr(self, name).sum()} {name.removesuffix('_mask')}" for name in MASKS]
        inputs = sorted({*self.vertex_inputs, *self.edge_inputs})
        parts = [
            f"{graph.num_vertices} vertices, {graph.num_edges} edges, {self.num_features} features, {labels}",
            ", ".join(masks),
            *([f"inputs {', '.join(inputs)}"] if inputs else []),
        ]
        return f"Dataset({self.name!r}: {'; '.join(parts)})"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the folder that `from_folder` reads, in the user's vertex order.

        Args:
            path: Path of the folder; a folder that dorylax wrote is replaced.

        Raises:
            GraphError: There is something else at the path.
            OSError: The folder cannot be written.
        """
        restore = user_order(self.graph)
        data = self if restore is None else self.reorder(restore)
        arrays = graph_arrays(data.graph, data.edge_inputs) | {"name": np.array(self.name)}
        arrays |= {name: getattr(data, name) for name in ("features", "labels", *MASKS)}
        if self.num_classes is not None:
            arrays |= {"num_classes": np.array(self.num_classes), "multilabel": np.array(self.multilabel)}
        if self.class_names is not None:
            arrays[CLASS_NAMES] = stored_names(CLASS_NAMES, self.class_names)
        if self.original_ids is not None:
            arrays[ORIGINAL_IDS] = self.original_ids
        save_arrays(path, arrays | {f"{VERTEX_PREFIX}{name}": array for name, array in data.vertex_inputs.items()})


def arrays_of(data: Dataset) -> tuple[np.ndarray, ...]:
    """All arrays of a data set, of its graph those of in-edges."""
    rows = data.graph.incoming
    masks = (getattr(data, name) for name in MASKS)
    further = (*data.vertex_inputs.values(), *data.edge_inputs.values())
    if data.original_ids is not None:
        further = (*further, data.original_ids)
    return (rows.offsets, rows.neighbours, data.features, data.labels, *masks, *further)


def _of_roles(name: str, read: Imported[Graph], roles: Roles) -> Dataset:
    return Dataset(**by_role(name, read, **roles))


def _normalised(features: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    scaled: np.ndarray = np.divide(features, np.maximum(features.sum(axis=1, keepdims=True), 1), out=out)
    return scaled
