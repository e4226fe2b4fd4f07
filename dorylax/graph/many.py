"""Many small graphs as one: side by side, without edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from dorylax.graph.array_names import MASKS
from dorylax.graph.arrays import as_array
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.labels import as_mask
from dorylax.graph.rows import all_rows
from dorylax.graph.transform import closed_part
from dorylax.graph.validate import GraphError, check_length

GRAPH_OF = "graph_of"
"""The input of a merged data set that says which graph each vertex is of, int32 `[V]`."""


def merge_graphs(
    name: str,
    graphs: Sequence[Graph],
    features: Sequence[Any],
    labels: Any,
    num_classes: int | None = None,
    *,
    train_mask: Any = None,
    val_mask: Any = None,
    test_mask: Any = None,
    vertex_inputs: Mapping[str, Sequence[Any]] | None = None,
    multilabel: bool | None = None,
) -> Dataset:
    """Graphs as one data set, for `dorylax.tasks.GraphPrediction`: their vertices one after the other, and so their edges.

    Vertex v of graph g becomes vertex v + (number of vertices of the preceding graphs), and its edges are renumbered in the
    same way; they keep their `Graph.edge_data`. Each vertex has the label and the masks of its graph, and the graph's number
    in `vertex_inputs["graph_of"]`, so that archives, splits and reordering need no special case for graphs.

    Args:
        name: what reports call it.
        graphs: G graphs, each with a vertex at least.
        features: of each graph, `[V_g, F]`.
        labels: of the graphs, `[G]` or `[G, …]`, as of vertices in `Dataset`.
        num_classes: as in `Dataset`.
        train_mask: the graphs to train on: bool `[G]`, or numbers; without any mask all that have a label.
        val_mask: the graphs to validate with, in the same form.
        test_mask: the graphs to test with, in the same form.
        vertex_inputs: Additional inputs of the model under their names: an array `[V_g, …]` for each graph.
        multilabel: as in `Dataset`.

    Raises:
        GraphError: a graph is empty or was reordered, lengths differ, edges of some graphs have values that those of
            others lack, or `Dataset` raises it.
    """
    rows = [as_array(f"features[{number}]", one) for number, one in enumerate(features)]
    truth = as_array("labels", labels)
    check_length("labels", truth, len(graphs), "one per graph")
    if not graphs:
        raise GraphError("merge_graphs needs at least one graph")
    if len(features) != len(graphs):
        raise GraphError(f"features has length {len(features)}: expected {len(graphs)}, an array per graph")
    for number, (graph, one) in enumerate(zip(graphs, rows, strict=True)):
        if not graph.num_vertices:
            raise GraphError(f"graph {number} has no vertex, so nothing is known of it: leave it out, or give it one")
        if graph.vertex_ids is not None:
            raise GraphError(f"graph {number} was reordered: merge_graphs takes graphs in the user's order of vertices")
        check_length(f"features[{number}]", one, graph.num_vertices, "one row per vertex")
        if graph.edge_data.keys() != graphs[0].edge_data.keys():
            raise GraphError(
                f"edges of graph {number} have {sorted(graph.edge_data)}, those of graph 0 {sorted(graphs[0].edge_data)}: "
                "give all of them the same"
            )
    sizes = [graph.num_vertices for graph in graphs]
    starts = np.cumsum([0, *sizes])
    graph_of = np.repeat(np.arange(len(graphs), dtype=np.int32), sizes)
    ends = [_ends(graph) + start for graph, start in zip(graphs, starts[:-1], strict=True)]
    edge_data = {key: np.concatenate([graph.edge_data[key] for graph in graphs]) for key in graphs[0].edge_data}
    sources, targets = np.concatenate(ends, axis=1)
    given = dict(zip(MASKS, (train_mask, val_mask, test_mask), strict=True))
    masks = {key: as_mask(key, value, len(graphs))[graph_of] for key, value in given.items() if value is not None}
    inputs = {
        key: np.concatenate([as_array(key, one) for one in parts]) for key, parts in (vertex_inputs or {}).items()
    }
    return Dataset(
        name,
        Graph.from_coo(sources, targets, int(starts[-1]), edge_data=edge_data),
        np.concatenate(rows),
        truth[graph_of],
        num_classes,
        **masks,
        vertex_inputs=inputs | {GRAPH_OF: graph_of},
        multilabel=multilabel,
    )


def chosen_graphs(data: Dataset, chosen: Bool[np.ndarray, " G"]) -> Dataset:
    """The vertices and edges of some graphs alone; all graphs keep their numbers, labels and masks."""
    keep = chosen[data.vertex_inputs[GRAPH_OF]]
    graph, places = closed_part(data.graph, keep)
    vertex_inputs = {name: values[keep] for name, values in data.vertex_inputs.items()}
    return data.of_examples(
        data.examples,
        graph=graph.with_graphs(vertex_inputs[GRAPH_OF], len(chosen)),
        features=data.features[keep],
        vertex_inputs=vertex_inputs,
        edge_inputs={name: values[places] for name, values in data.edge_inputs.items()},
    )


def _ends(graph: Graph) -> np.ndarray:
    """Sources and targets `[2, E]`, in order of edge ids."""
    offsets, sources = graph.host_rows()
    ends: np.ndarray = np.stack([sources, all_rows(offsets)])
    places = graph.edge_order
    return ends if places is None else ends[:, np.argsort(places, kind="stable")]
