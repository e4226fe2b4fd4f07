"""Traces an ordinary model, called on symbols, into the jaxpr of its step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.errors import InputError
from dorylax.graph.compressed import Adjacency
from dorylax.graph.graph import Graph
from dorylax.graph.rows import BySlot
from dorylax.jax_internals import (
    ClosedJaxpr,
    InconclusiveDimensionOperation,
    JaxprEqn,
    Var,
    close,
    is_key,
    is_literal,
    make_jaxpr_of,
    variables,
)
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.errors import SplitError, refuse, where_raised, where_written
from dorylax.program.jaxpr.rewrite import reached, simplify
from dorylax.program.jaxpr.symbols import Dimensions, new_dimensions
from dorylax.program.model.base import ModelKindError, ModelParts, Tree, epoch_rng
from dorylax.program.model.kinds import take_apart
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.program.rows import advice
from dorylax.program.rows.check import infer
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Rows, RowType
from dorylax.program.tracing.complete_sums import complete_sums
from dorylax.program.tracing.differentiate import constants_as_inputs, derive
from dorylax.program.tracing.flatten import RowNumbers, flatten
from dorylax.program.tracing.spec import DataSpec
from dorylax.program.tracing.traced import Input, Output, Traced, whole_outputs
from dorylax.program.tracing.untraceable import OnNumbers, explain


def trace_model(
    model: Any,
    data_spec: DataSpec,
    *,
    loss: RowFunction | None,
    metrics: RowFunction | None,
    params: Tree,
    rngs: tuple[str, ...],
    fused: bool,
) -> Traced:
    """Trace a model; see `dorylax.program.trace` for arguments and errors."""

    def forward(dimensions: Dimensions) -> _Forward:
        graph = _graph(_graph_arrays(dimensions), _ids(dimensions), data_spec)
        inputs, named = data_spec.call([spec.abstract(dimensions) for spec in data_spec.rows])
        parts = take_apart(model, graph, *inputs, named=named, params=params, rngs=rngs)
        return _forward(parts, data_spec, dimensions, loss, metrics)

    try:
        return _trace(forward(new_dimensions()), data_spec, loss, fused=fused)
    except Exception as error:
        in_users_code = bool(where_raised(error))
        if isinstance(error, SplitError | ModelKindError) or (isinstance(error, InputError) and not in_users_code):
            raise
        if not isinstance(error, _OF_SYMBOLS) and not in_users_code:
            raise  # an error in dorylax
        raise explain(error, data_spec, _on_numbers(forward, data_spec)) from error


def _graph_arrays(dimensions: Dimensions) -> list[jax.ShapeDtypeStruct]:
    n, e = dimensions
    offsets, entries = jax.ShapeDtypeStruct((n + 1, 2), jnp.uint32), jax.ShapeDtypeStruct((e,), jnp.int32)
    return [offsets, entries, offsets, entries, entries]


def _ids(dimensions: Dimensions) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct((size,), jnp.int32) for size in dimensions]


def _graph(arrays: Sequence[Any], ids: Sequence[Any], spec: DataSpec) -> Graph:
    """Return the graph that a model sees: separate arrays for both directions, ids always present, edge values by slot."""
    edges = arrays[4] if spec.edge_ids_fit else None
    return Graph(
        arrays[0],
        arrays[1],
        outgoing=Adjacency(arrays[2], arrays[3], edges),
        symmetric=spec.symmetric,
        self_loops=spec.self_loops,
        vertex_ids=ids[0],
        placed=BySlot(),
        edge_ids=ids[1],
        edge_data=None,
        without_edge_ids=not spec.edge_ids_fit,
    )


# Errors of JAX and of graph operators' checks for models that do not support symbols.
_OF_SYMBOLS = (TypeError, ValueError, InconclusiveDimensionOperation, IndexError, NotImplementedError)


class _Forward(NamedTuple):
    """Forward pass and loss of a model, for sizes that may be symbols."""

    name: str
    closed: ClosedJaxpr
    inputs: list[Input]
    outputs: list[Output]
    trees: dict[str, Any]


def _on_numbers(forward: Callable[[Dimensions], _Forward], spec: DataSpec) -> OnNumbers | None:
    """Trace the same model at the sizes of its data, if known.

    Raises:
        Exception: The model raises this error here too. Errors from dorylax's checks are left to the trace on symbols.
    """
    if spec.num_vertices is None or spec.num_edges is None:
        return None
    try:
        found = forward(Dimensions(spec.num_vertices, spec.num_edges))
        flat = flatten(found.closed, custom=True, fused=True)
    except Exception as error:
        if where_raised(error) and not isinstance(error, SplitError):
            raise error from None
        return None
    return OnNumbers(flat, found.inputs)


def _forward(
    parts: ModelParts,
    spec: DataSpec,
    dimensions: Dimensions,
    loss: RowFunction | None,
    metrics: RowFunction | None,
) -> _Forward:
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
        "graph": ([Input("graph", name) for name in Structure._fields], _graph_arrays(dimensions)),
        "ids": ([Input("ids", "vertex ids", "vertex"), Input("ids", "edge ids", "edge")], _ids(dimensions)),
        "places": ([Input("places", "edge places", "edge")], jax.ShapeDtypeStruct((dimensions.edges,), jnp.int32)),
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
    # Dicts flatten by sorted keys, so inputs are in the order of the leaves.
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
        # `where`, not a product, since 0 · inf of an excluded vertex would be NaN.
        total = jnp.where(counted, rows * given["weights"].astype(rows.dtype), 0).sum()
        sums = {} if metrics is None else {"counts": _masked_sum(metrics(output, given["labels"]), counted)}
        trees["metric"] = jax.tree.structure(sums)
        outputs[:] = [Output("loss", "loss"), *(Output("metric", path) for path in _paths(sums, "metric"))]
        outputs.extend(Output("state", path) for path in _paths(state, "state"))
        return [total, *jax.tree.leaves(sums), *jax.tree.leaves(state)]

    return _Forward(parts.name, make_jaxpr_of(forward, *specs), inputs, outputs, trees)


def _trace(found: _Forward, spec: DataSpec, loss: RowFunction | None, *, fused: bool) -> Traced:
    name, closed, inputs, outputs, trees = found
    flat = flatten(closed, custom=False, row_numbers=RowNumbers.of(inputs), fused=fused)
    _check_effects(flat, alone=fused)
    flat = simplify(flat)
    flat, entries, constants = constants_as_inputs(flat, tuple(inputs), ())
    opened = flatten(flat, custom=True, row_numbers=RowNumbers.of(entries), fused=fused)
    try:
        opened = complete_sums(opened, entries, whole=whole_outputs(outputs))
    except RowError as error:
        if _of_labels_alone(error.equation, opened, entries):
            raise error.advising(advice.BEFOREHAND) from None
        raise
    types = infer(opened.jaxpr, [entry.row_type for entry in entries])
    _check_keys(opened, types)
    _check_outputs(opened, types, outputs)
    kept = tuple(outputs)
    if loss is not None:
        flat, kept = _without_unchanged_state(flat, entries, kept)
    derived = derive(flat, entries, constants, kept, fused=fused)
    return Traced(name, spec, forward_outputs=kept, trees=trees, fused=fused, **derived._asdict())


_EFFECTS = ("debug_print", "debug_callback", "io_callback")


def _check_effects(closed: ClosedJaxpr, *, alone: bool) -> None:
    """Check prints and other callbacks whose results no value needs; a program drops them.

    Args:
        closed: The model.
        alone: Whether one machine runs the program on whole data, and can run the model as plain jit instead.

    Raises:
        SplitError: The model has one, and `alone` holds.

    Warns:
        UserWarning: The model has one, and `alone` does not hold.
    """
    for equation in closed.jaxpr.eqns:
        if equation.primitive.name in _EFFECTS and not equation.outvars:
            what = f"{equation.primitive.name}{where_written(equation)}"
            if alone:
                raise SplitError(f"the optimised program drops {what}", side_effect=True)
            warnings.warn(
                f"{what} does nothing in a model that is split or streamed. Remove it, or train in memory on one machine "
                "(no pipeline, single.memory=auto)",
                UserWarning,
                stacklevel=2,
            )


def _of_labels_alone(equation: JaxprEqn, closed: ClosedJaxpr, inputs: Sequence[Input]) -> bool:
    """Whether an operation computes with labels, and not with parameters, random streams or state."""
    entries = list(zip(closed.jaxpr.invars, inputs, strict=True))

    def meets(*roles: str) -> bool:
        reads = reached(closed.jaxpr.eqns, (var for var, entry in entries if entry.role in roles))
        return not reads.isdisjoint(variables(equation.invars))

    return meets("labels") and not meets("param", "stream", "state")


def _check_keys(closed: ClosedJaxpr, types: Mapping[Var, RowType]) -> None:
    """Refuse a key for each row, since only the driver handles keys, and stages get their words."""
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
    """Refuse state with rows, which no server could keep for all."""
    for atom, output in zip(closed.jaxpr.outvars, outputs, strict=True):
        found = None if is_literal(atom) else types[atom]
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
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jax.typeof(leaf).shape, jax.typeof(leaf).dtype), tree)
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
    forward: ClosedJaxpr, inputs: Sequence[Input], outputs: tuple[Output, ...]
) -> tuple[ClosedJaxpr, tuple[Output, ...]]:
    """Drop outputs of state that the model only reads and returns unchanged."""
    pairs = zip(inputs, forward.jaxpr.invars, strict=True)
    given = {entry.name: var for entry, var in pairs if entry.role == "state"}
    kept = [
        k
        for k, (entry, atom) in enumerate(zip(outputs, forward.jaxpr.outvars, strict=True))
        if entry.role != "state" or atom is not given.get(entry.name)
    ]
    consts = dict(zip(forward.jaxpr.constvars, forward.consts, strict=True))
    chosen = [forward.jaxpr.outvars[k] for k in kept]
    return close(forward.jaxpr.invars, chosen, forward.jaxpr.eqns, consts), tuple(outputs[k] for k in kept)
