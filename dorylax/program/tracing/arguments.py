"""The arrays of one run of a program, and its results as trees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.graph.compressed import CompressedGraph
from dorylax.jax_internals import Var, type_of
from dorylax.ops.primitives.structure import Structure, structure_of
from dorylax.ops.row_random import edge_ids, vertex_ids
from dorylax.ops.scatter import from_slots, to_slots
from dorylax.program.jaxpr.symbols import row_space
from dorylax.program.model.base import Tree
from dorylax.program.tracing.traced import Input, Traced


@final
@dataclasses.dataclass(frozen=True)
class RunData:
    """The arrays that stay the same in all epochs.

    Attributes:
        graph: Graph with V vertices and E edges.
        inputs: Arguments of the model after the graph, described by `DataSpec.rows`. Values per edge are in order of edge
            ids, for any memory order of the graph.
        labels: Labels `[V, …]`, described by `DataSpec.labels`.
        weights: Share `[V]` of each vertex in the loss: 1/m for the m training vertices of a mean, 0 for unlabelled ones.
    """

    graph: CompressedGraph
    inputs: tuple[Any, ...]
    labels: Any
    weights: Any


jax.tree_util.register_dataclass(RunData, ["graph", "inputs", "labels", "weights"], [])


@final
@dataclasses.dataclass(frozen=True)
class StepResult:
    """The results of one step.

    Attributes:
        loss: Scalar Σ weight · loss.
        metrics: Sums of the metrics given to `trace`, over the vertices with a weight other than 0.
        gradients: Gradients of the loss, with the structure of the parameters.
        state: New state, with the structure of the old one.
        input_gradients: Input name → gradient of the loss, if the program computes them.
    """

    loss: Any
    metrics: Tree
    gradients: Tree
    state: Tree
    input_gradients: dict[str, Any]


jax.tree_util.register_dataclass(StepResult, ["loss", "metrics", "gradients", "state", "input_gradients"], [])


def training_weights(mask: Any, dtype: Any = np.float32) -> np.ndarray:
    """Weights of the mean over the vertices of a mask, `[V]`: 1/m for its m vertices, 0 for all others."""
    chosen = np.asarray(mask, bool)
    weights: np.ndarray = (chosen / max(1, chosen.sum())).astype(dtype)
    return weights


def data_inputs(
    traced: Traced,
    array: Callable[[Var, Input], Any],
    num_vertices: int,
    num_edges: int,
    wanted: Container[Var] | None = None,
) -> dict[int, Any]:
    """Return the inputs that stay the same in all epochs, by position, for any back end.

    Args:
        traced: The model.
        array: Returns an input that is neither a count nor a constant, in the back end's form.
        num_vertices: V of the whole graph.
        num_edges: E of the whole graph.
        wanted: Inputs to return, without the graph's arrays; None: all inputs.
    """
    counts = {"vertices": num_vertices, "edges": num_edges if traced.spec.edge_ids_fit else -1}
    constants = iter(traced.constants)
    values = {}
    for k, (var, entry) in enumerate(zip(traced.step.jaxpr.invars, traced.inputs, strict=True)):
        constant = next(constants) if entry.role == "constant" else None
        if not entry.of_data or (wanted is not None and (entry.role == "graph" or var not in wanted)):
            continue
        if entry.role == "constant":
            values[k] = constant
        elif entry.role == "count":
            values[k] = jnp.int32(counts[entry.name])
        else:
            values[k] = array(var, entry)
    return values


def data_values(traced: Traced, data: RunData) -> dict[int, Any]:
    """The inputs that stay the same in all epochs, by position; values per edge are in order of slots.

    Raises:
        ValueError: An array differs in shape or dtype from the traced one.
    """
    counted = traced.spec.edge_ids_fit
    structure = structure_of(data.graph, edge_ids=counted)
    by_name: dict[tuple[str, str], Any] = {("graph", name): getattr(structure, name) for name in Structure._fields}
    by_name["ids", "vertex ids"] = vertex_ids(data.graph)
    none = jnp.zeros((0,), jnp.int32)
    ids = places = to_slots(data.graph, edge_ids(data.graph)) if counted else none
    if counted and data.graph.edge_ids is not None:
        places = to_slots(data.graph, jnp.arange(data.graph.num_edges, dtype=jnp.int32))
    by_name["ids", "edge ids"], by_name["places", "edge places"] = ids, places
    by_name["real", "real vertices"] = jnp.ones((data.graph.num_vertices,), bool)
    by_name["real", "real edges"] = jnp.ones((data.graph.num_edges if counted else 0,), bool)
    wanted = sum(entry.role == "rows" for entry in traced.inputs)
    if len(data.inputs) > wanted:
        raise ValueError(f"inputs must be the {wanted} arrays that the model was traced with, got {len(data.inputs)}")
    rows = iter(data.inputs)

    def array(var: Var, entry: Input) -> Any:
        if entry.role not in ("rows", "labels", "weights"):
            return by_name[entry.role, entry.name]
        value: Any = next(rows, None) if entry.role == "rows" else getattr(data, entry.role)
        _check(entry, var.aval, value, data.graph)
        return to_slots(data.graph, value) if entry.role == "rows" and entry.space == "edge" else value

    return data_inputs(traced, array, data.graph.num_vertices, data.graph.num_edges)


def step_values(traced: Traced, params: Tree, streams: Tree, state: Tree, *, seed: Any, epoch: Any) -> dict[int, Any]:
    """The inputs that change from epoch to epoch, by position, in order.

    Scalars are NumPy arrays, because each `jnp.uint32` would call JAX.
    """
    leaves = {"param": iter(jax.tree.leaves(params)), "stream": iter(jax.tree.leaves(streams))}
    leaves["state"] = iter(jax.tree.leaves(state))
    scalars = {"seed": seed, "epoch": epoch}
    values: dict[int, Any] = {}
    for k, entry in enumerate(traced.inputs):
        if entry.role == "loss_scale":
            values[k] = np.ones((), traced.step.jaxpr.invars[k].aval.dtype)
        elif entry.role in leaves:
            values[k] = next(leaves[entry.role])
        elif entry.role in scalars:
            scalar = scalars[entry.role]
            values[k] = scalar if isinstance(scalar, jax.Array) else np.asarray(scalar, np.uint32)
    return values


def unpack(traced: Traced, values: Sequence[Any], state: Tree, graph: CompressedGraph | None = None) -> StepResult:
    """The outputs of a step as trees.

    Args:
        traced: The step.
        values: Outputs of the step, in order.
        state: State before the step, which supplies the unchanged values.
        graph: Graph of the step, by which values per edge get from slots to the order of edge ids; None for no change.
    """
    found: dict[str, dict[str, Any]] = {}
    for output, value in zip(traced.outputs, _in_users_order(traced, values, graph), strict=True):
        found.setdefault(output.role, {})[output.name] = value
    names = [entry.name for entry in traced.inputs if entry.role == "state"]
    old = dict(zip(names, jax.tree.leaves(state), strict=True))
    changed = {**old, **found.get("state", {})}
    gradients = found.get("gradient", {})
    return StepResult(
        loss=found["loss"]["loss"],
        metrics=jax.tree.unflatten(traced.trees["metric"], list(found.get("metric", {}).values())),
        gradients=jax.tree.unflatten(
            traced.trees["param"], [gradients[entry.name] for entry in traced.inputs if entry.role == "param"]
        ),
        state=jax.tree.unflatten(traced.trees["state"], [changed[name] for name in names]),
        input_gradients=found.get("input_gradient", {}),
    )


def unpack_output(traced: Traced, values: Sequence[Any], graph: CompressedGraph | None = None) -> Any:
    """Return the output of a model traced without a loss; arguments as in `unpack`."""
    return jax.tree.unflatten(traced.trees["output"], _in_users_order(traced, values, graph))


def _in_users_order(traced: Traced, values: Sequence[Any], graph: CompressedGraph | None) -> list[Any]:
    if graph is None:
        return list(values)
    found = []
    for atom, value in zip(traced.step.jaxpr.outvars, values, strict=True):
        spaces = [row_space(size) for size in type_of(atom).shape]
        axis = next((k for k, entry in enumerate(spaces) if entry is not None and entry[0] == "edge"), None)
        if axis is not None:
            _, factor = spaces[axis] or ("edge", 1)
            # `factor` elements of each edge may lie along the axis.
            split = jnp.reshape(value, (*value.shape[:axis], graph.num_edges, factor, *value.shape[axis + 1 :]))
            rows = from_slots(graph, jnp.moveaxis(split, axis, 0))
            found.append(jnp.reshape(jnp.moveaxis(rows, 0, axis), value.shape))
        else:
            found.append(value)
    return found


def _check(entry: Input, aval: Any, value: Any, graph: CompressedGraph) -> None:
    if value is None:
        raise ValueError(f"input {entry.name} is missing: the model was traced with it")
    rows = graph.num_vertices if entry.space == "vertex" else graph.num_edges
    wanted = (rows, *aval.shape[1:])
    dtype = jax.dtypes.canonicalize_dtype(value.dtype)
    if tuple(value.shape) != wanted or dtype != aval.dtype:
        raise ValueError(
            f"{entry.name} must be {aval.dtype} {list(wanted)}, as the model was traced, "
            f"got {value.dtype} {list(value.shape)}"
        )
