"""`trace`: an ordinary model becomes a `Program`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.graph.graph import Adjacency, Graph
from dorylax.jax_internals import (
    ClosedJaxpr,
    InconclusiveDimensionOperation,
    Var,
    close,
    is_key,
    is_literal,
    make_jaxpr_of,
)
from dorylax.program.constants import constants_as_inputs
from dorylax.program.differentiate import differentiate, undifferentiated
from dorylax.program.epoch_rng import epoch_rng
from dorylax.program.errors import SplitError, refuse
from dorylax.program.flatten import flatten
from dorylax.program.loss import confusion, cross_entropy
from dorylax.program.model.base import ModelKindError, ModelParts, NoParametersError, Tree
from dorylax.program.model.kinds import take_apart
from dorylax.program.places import Places
from dorylax.program.program import Program
from dorylax.program.rows.check import infer
from dorylax.program.rows.errors import misused_sum
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.simplify import simplify
from dorylax.program.source import where_raised
from dorylax.program.spec import DataSpec
from dorylax.program.symbols import Dimensions, new_dimensions
from dorylax.program.traced import Input, Output, Traced

RowFunction = Callable[[Any, Any], Any]
"""`(model's output, labels) -> rows [V, …]`."""


def trace(
    model: Any,
    data_spec: DataSpec,
    *,
    loss: RowFunction | None = cross_entropy,
    metrics: RowFunction | None = confusion,
    params: Tree = None,
    rngs: tuple[str, ...] = ("dropout",),
    fused: bool = False,
) -> Program:
    """Traces a model with its loss and gradients and splits it into graph tasks and stages, not yet optimised.

    Nothing is computed and no data are needed: numbers of vertices and edges stay symbols.

    Args:
        model: a Flax NNX or Linen module, called as `model(graph, *inputs, **named)`, or a function
            `f(params, graph, *inputs, **named)`.
        data_spec: the shapes of inputs and labels; `DataSpec.of(data)` for a data set.
        loss: `(output, labels) -> [V]`, the loss of each vertex; what is minimised is its mean over the training vertices.
            None traces the model's exact forward pass (no dropout, nothing updated) instead.
        metrics: `(output, labels) -> [V, …]`, summed over the training vertices; None for none.
        params: parameters (arrays or shapes) of a plain function.
        rngs: names of the random streams of a Linen module.
        fused: whether operators that others make up (`ops.additive_attention`) stay in one piece, as is fastest on one
            machine; by default they are written out in those others, which a pipeline can split.

    Raises:
        SplitError: the model mixes rows otherwise than by graph operators, or cannot be traced; the message names the line.
        TypeError: the model is none of these kinds.
        ValueError: it has no parameters.
    """
    dimensions = new_dimensions()
    graph = _graph_arrays(dimensions)
    inputs, named = data_spec.call([spec.abstract(dimensions) for spec in data_spec.rows])
    concrete = _graph(graph, _ids(dimensions), data_spec)
    try:
        parts = take_apart(model, concrete, *inputs, named=named, params=params, rngs=rngs)
        traced = _trace(parts, data_spec, dimensions, loss, metrics, fused=fused)
    except (TypeError, ValueError, InconclusiveDimensionOperation, IndexError, NotImplementedError) as error:
        if isinstance(error, SplitError | ModelKindError | NoParametersError):
            raise
        raise SplitError(_untraceable(error, data_spec)) from error
    return Program.of(traced)


_GRAPH = ("in_offsets", "in_neighbours", "out_offsets", "out_neighbours", "out_edges")


def _graph_arrays(dimensions: Dimensions) -> list[jax.ShapeDtypeStruct]:
    n, e = dimensions
    offsets, entries = jax.ShapeDtypeStruct((n + 1, 2), jnp.uint32), jax.ShapeDtypeStruct((e,), jnp.int32)
    return [offsets, entries, offsets, entries, entries]


def _ids(dimensions: Dimensions) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct((size,), jnp.int32) for size in dimensions]


def _graph(arrays: Sequence[Any], ids: Sequence[Any], spec: DataSpec) -> Graph:
    """The graph that a model sees: both directions as arrays of their own, ids always there."""
    edges = arrays[4] if spec.edge_ids_fit else None
    return Graph(
        arrays[0],
        arrays[1],
        outgoing=Adjacency(arrays[2], arrays[3], edges),
        symmetric=spec.symmetric,
        self_loops=spec.self_loops,
        vertex_ids=ids[0],
        edge_ids=ids[1],
        without_edge_ids=not spec.edge_ids_fit,
    )


def _trace(
    parts: ModelParts,
    spec: DataSpec,
    dimensions: Dimensions,
    loss: RowFunction | None,
    metrics: RowFunction | None,
    *,
    fused: bool,
) -> Traced:
    _check_params(parts.params)
    wide = any(entry.dtype == "float64" for entry in spec.rows)
    real = jax.dtypes.canonicalize_dtype(np.float64 if wide else np.float32)
    scalar = {name: jax.ShapeDtypeStruct((), dtype) for name, dtype in (("index", jnp.uint32), ("real", real))}
    count = jax.ShapeDtypeStruct((), jnp.int32)
    named: dict[str, tuple[list[Input], Any]] = {
        "param": _leaves("param", parts.params),
        "stream": _leaves("stream", parts.streams),
        "state": _leaves("state", parts.state),
        "seed": ([Input("seed", "seed")], scalar["index"]),
        "epoch": ([Input("epoch", "epoch")], scalar["index"]),
        "loss_scale": ([Input("loss_scale", "loss_scale")], scalar["real"]),
        "counts": ([Input("count", "vertices", "vertex"), Input("count", "edges", "edge")], [count, count]),
        "graph": ([Input("graph", name) for name in _GRAPH], _graph_arrays(dimensions)),
        "ids": ([Input("ids", "vertex ids", "vertex"), Input("ids", "edge ids", "edge")], _ids(dimensions)),
        "real": (
            [Input("real", "real vertices", "vertex"), Input("real", "real edges", "edge")],
            [jax.ShapeDtypeStruct((size,), jnp.bool_) for size in dimensions],
        ),
        "rows": (
            [Input("rows", entry.name, entry.space) for entry in spec.rows],
            [entry.abstract(dimensions) for entry in spec.rows],
        ),
        "labels": ([Input("labels", spec.labels.name, "vertex")], spec.labels.abstract(dimensions)),
        "weights": ([Input("weights", "weights", "vertex")], jax.ShapeDtypeStruct((dimensions.vertices,), real)),
    }
    specs, tree = jax.tree.flatten({name: values for name, (_, values) in named.items()})
    # Dicts flatten by sorted keys; the order of inputs is that of the leaves.
    inputs = [entry for name in sorted(named) for entry in named[name][0]]
    trees: dict[str, Any] = {
        "param": jax.tree.structure(parts.params),
        "stream": jax.tree.structure(parts.streams),
        "state": jax.tree.structure(parts.state),
    }
    outputs: list[Output] = []

    def forward(*values: Any) -> list[Any]:
        given = jax.tree.unflatten(tree, values)
        graph = _graph(given["graph"], given["ids"], spec)
        streams = epoch_rng(given["stream"], given["seed"], given["epoch"])
        inputs, further = spec.call(given["rows"])
        call = (given["param"], streams, given["state"], graph, *inputs)
        if loss is None:
            output = parts.structure.apply_evaluate(*call, **further)
            leaves, trees["output"] = jax.tree.flatten(output)
            outputs[:] = [Output("output", path) for path in _paths(output, "output")]
            return leaves
        output, state = parts.structure.apply_train(*call, **further)
        if loss is cross_entropy and not isinstance(output, jax.Array):
            raise TypeError(
                f"the model must return one array [V, C] for the default loss, got {type(output).__name__}: "
                "give trace(…, loss=…) what to make of it"
            )
        rows = _checked_rows(loss(output, given["labels"]), dimensions)
        counted = given["weights"] != 0
        # `where`, not a product: 0 · inf of a vertex that does not count would be NaN.
        total = jnp.where(counted, rows * given["weights"].astype(rows.dtype), 0).sum()
        sums = {} if metrics is None else {"counts": _masked_sum(metrics(output, given["labels"]), counted)}
        trees["metric"] = jax.tree.structure(sums)
        outputs[:] = [Output("loss", "loss"), *(Output("metric", path) for path in _paths(sums, "metric"))]
        outputs.extend(Output("state", path) for path in _paths(state, "state"))
        return [total, *jax.tree.leaves(sums), *jax.tree.leaves(state)]

    closed = make_jaxpr_of(forward, *specs)
    flat = simplify(flatten(closed, custom=False, places=Places.of(inputs), fused=fused))
    flat, entries, constants = constants_as_inputs(flat, tuple(inputs), ())
    opened = flatten(flat, custom=True, places=Places.of(entries), fused=fused)
    types = infer(opened.jaxpr, [entry.row_type for entry in entries])
    _check_keys(opened, types)
    _check_outputs(opened, types, outputs)
    if loss is None:
        kept = tuple(outputs)
        derived = undifferentiated(flat, entries, constants, kept, fused=fused)
    else:
        flat, kept = _without_unchanged_state(flat, tuple(outputs))
        derived = differentiate(flat, entries, constants, kept, input_gradients=True, fused=fused)
    return Traced(parts.name, spec, dimensions, forward_outputs=kept, trees=trees, fused=fused, **derived._asdict())


def _check_keys(closed: ClosedJaxpr, types: Mapping[Var, RowType]) -> None:
    """Refuses a key for each row: keys are the driver's, stages get words."""
    for equation in closed.jaxpr.eqns:
        for var in equation.outvars:
            found = types[var]
            if isinstance(found, Rows) and is_key(var.aval):
                refuse(
                    equation,
                    f"a random key for each {found.space}",
                    "Draw all rows from one key, jax.random.normal(key, [V, …]): each row is then drawn by its id",
                )


def _check_outputs(closed: ClosedJaxpr, types: Mapping[Var, RowType], outputs: Sequence[Output]) -> None:
    """Refuses what no part of the rows can give: sums that are not part of the loss, and state with rows."""
    for atom, output in zip(closed.jaxpr.outvars, outputs, strict=True):
        found = None if is_literal(atom) else types[atom]
        if isinstance(found, Summed) and output.role in ("state", "output"):
            kept = f"The model keeps it as its state {output.name}"
            raise misused_sum(found, None, kept if output.role == "state" else "The model returns it")
        if isinstance(found, Rows) and output.role == "state":
            raise SplitError(
                f"the model keeps a row for each {found.space} as its state {output.name}: compute such rows anew in every "
                "epoch, or make them an input of the model"
            )


def _check_params(params: Tree) -> None:
    for path, leaf in zip(_paths(params, "param"), jax.tree.leaves(params), strict=True):
        dtype = jax.typeof(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise ModelKindError(
                f"parameter {path} is {dtype}, which has no gradient: parameters must be of a floating-point dtype; "
                "keep integers as constants or state of the model"
            )


def _leaves(role: Any, tree: Tree) -> tuple[list[Input], Tree]:
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jax.typeof(leaf).dtype), tree)
    return [Input(role, path) for path in _paths(tree, role)], specs


def _paths(tree: Tree, name: str) -> list[str]:
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)]
    if len(set(paths)) < len(paths):  # {"a": {"b": …}} and {"a/b": …}
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(tree)]
    return [path or name for path in paths]


def _checked_rows(rows: Any, dimensions: Dimensions) -> Any:
    if getattr(rows, "shape", None) != (dimensions.vertices,):
        raise ValueError(
            f"loss(output, labels) must give one number per vertex, shape [V], got {getattr(rows, 'shape', rows)}: "
            "return the loss of each vertex and leave the mean to dorylax"
        )
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        raise ValueError(f"loss(output, labels) must give real numbers, got {rows.dtype}: it would have no gradient")
    return rows


def _masked_sum(rows: Any, counted: Any) -> Any:
    def total(leaf: Any) -> Any:
        mask = counted.reshape(-1, *(1,) * (leaf.ndim - 1))
        dtype = jnp.int32 if leaf.dtype == bool else leaf.dtype
        return jnp.where(mask, leaf, 0).sum(axis=0, dtype=dtype)

    return jax.tree.map(total, rows)


def _without_unchanged_state(
    forward: ClosedJaxpr, outputs: tuple[Output, ...]
) -> tuple[ClosedJaxpr, tuple[Output, ...]]:
    """Drops the outputs that are an input as it came: state that the model only reads."""
    given = set(forward.jaxpr.invars)
    kept = [
        k
        for k, (entry, atom) in enumerate(zip(outputs, forward.jaxpr.outvars, strict=True))
        if entry.role != "state" or is_literal(atom) or atom not in given
    ]
    consts = dict(zip(forward.jaxpr.constvars, forward.consts, strict=True))
    chosen = [forward.jaxpr.outvars[k] for k in kept]
    return close(forward.jaxpr.invars, chosen, forward.jaxpr.eqns, consts), tuple(outputs[k] for k in kept)


def _untraceable(error: Exception, spec: DataSpec) -> str:
    first = str(error).strip().split("\n")[0].rstrip(".")
    message = f"cannot trace the model{where_raised(error)}: {type(error).__name__}: {first}"
    shapes = re.findall(r"[(\[][\d, ne+*-]+[)\]]", first)
    numbers = {number for shape in shapes for number in re.findall(r"\d+", shape)}
    if numbers & {str(size) for size in (spec.num_vertices, spec.num_edges)}:
        return (
            f"{message}. An array with a row per vertex or edge that the model closes over must be an input of the model: "
            "declare it in DataSpec.inputs and pass it as model(graph, x, array)"
        )
    if isinstance(error, InconclusiveDimensionOperation) or any(re.search(r"\b[ne]\b", shape) for shape in shapes):
        return (
            f"{message}. Numbers of vertices and edges are symbols (n, e) while a model is split: it may not compare them, "
            "loop over them, or close over arrays that have a row for each (make such an array an input of the model)"
        )
    return message
