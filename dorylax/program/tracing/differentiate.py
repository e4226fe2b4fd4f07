"""Derives loss and gradients from a flat forward jaxpr: forward and backward pass in one list of equations.

Differentiation precedes splitting, so that gradients are ordinary equations. The same code then checks, hoists, prunes and
moves equations in both directions. The backward pass consists of the values that depend on the cotangent of the loss, which
is a separate input (`loss_scale`).

Sums over rows exclude padding. A stage is called with a fixed number of rows; missing rows are filled with copies of
a real row. Before rows are summed, padding rows are replaced by zeros: inputs "real", True for every row of the graph, mark
the others. Cotangents of 0 would not suffice, since a custom derivative may return any value for them. Without padding, XLA
drops the selection.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dorylax.jax_internals import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    close,
    fresh_var,
    is_literal,
    jaxpr_as_fun,
    make_jaxpr_of,
    replace_equation,
    type_of,
    variables,
)
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.jaxpr.rewrite import Builder, makers, reached, simplify
from dorylax.program.rows.check import infer
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tracing.complete_sums import complete_sums
from dorylax.program.tracing.flatten import RowNumbers, flatten
from dorylax.program.tracing.traced import Input, Output, whole_outputs


def without_padding(closed: ClosedJaxpr, inputs: tuple[Input, ...], types: dict[Var, RowType]) -> ClosedJaxpr:
    """Insert a selection of real rows before each sum over rows.

    Args:
        closed: Flat jaxpr of loss and gradients.
        inputs: Descriptions of its inputs.
        types: Row types of its values.
    """
    entries = list(zip(closed.jaxpr.invars, inputs, strict=True))
    real = {entry.space: var for var, entry in entries if entry.role == "real"}
    cotangents = reached(closed.jaxpr.eqns, (var for var, entry in entries if entry.role == "weights"))
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        operands = {}
        if any(isinstance(types[var], Summed) for var in equation.outvars):
            found = {k: types[atom] for k, atom in enumerate(equation.invars) if not is_literal(atom)}
            rows = {k: kind for k, kind in found.items() if isinstance(kind, Rows)}
            # Values independent of the cotangent are those of the copied row, which are finite if the model is.
            chosen = [k for k in rows if equation.invars[k] in cotangents] or list(rows)
            for k in chosen:
                atom, kind = equation.invars[k], rows[k]
                select = _select(tuple(type_of(atom).shape), kind.axis, kind.factor)
                operands[k] = builder.call(select, [builder.read(atom), builder.read(real[kind.space])], equation)
        builder.keep(equation, operands)
    return builder.finish()


@functools.lru_cache(maxsize=256)
def _select(shape: tuple[Any, ...], axis: int, factor: int) -> Callable[[Any, Any], Any]:
    """Return one function for equal shapes, so that JAX traces it once."""

    def select(x: Any, mask: Any) -> Any:
        if factor != 1:
            mask = jax.lax.broadcast_in_dim(mask, (*mask.shape, factor), (0,))
            mask = jax.lax.reshape(mask, (shape[axis],))
        mask = jax.lax.broadcast_in_dim(mask, shape, (axis,))
        return jax.lax.select(mask, x, jax.lax.full(shape, jnp.zeros((), x.dtype), x.dtype))

    return select


class Derived(NamedTuple):
    """A forward pass and the step derived from it, on the same inputs."""

    forward: ClosedJaxpr
    step: ClosedJaxpr
    inputs: tuple[Input, ...]
    constants: tuple[Any, ...]
    outputs: tuple[Output, ...]


def derive(
    forward: ClosedJaxpr,
    inputs: tuple[Input, ...],
    constants: tuple[Any, ...],
    outputs: tuple[Output, ...],
    *,
    fused: bool = False,
) -> Derived:
    """Derive the step of a model: its forward pass without opaque equations, and the gradients of its loss if it has one.

    Gradients are with respect to parameters, and to arrays of rows.

    Args:
        forward: Flat forward pass; a loss is its first output.
        inputs: Descriptions of its inputs.
        constants: Values of the inputs with role "constant".
        outputs: Descriptions of its outputs.
        fused: Whether fused operators stay.

    Raises:
        SplitError: A gradient mixes rows.
    """
    trains = any(output.role == "loss" for output in outputs)
    wanted = [k for k, entry in enumerate(inputs) if trains and _has_gradient(entry, forward.jaxpr.invars[k])]
    closed = _with_gradients(forward, inputs, wanted) if trains else forward
    closed = simplify(flatten(closed, custom=True, row_numbers=RowNumbers.of(inputs), fused=fused))
    closed, entries, values = constants_as_inputs(closed, inputs, constants)
    # Complete sums and exclude padding, so that the function stays correct if intervals compute it.
    phase = "in the gradient: " if trains else ""
    closed = complete_sums(closed, entries, whole=whole_outputs(outputs), phase=phase)
    types = infer(closed.jaxpr, [entry.row_type for entry in entries], phase=phase)
    closed = share_reshapes(simplify(without_padding(closed, entries, types)))
    roles = {"param": "gradient", "rows": "input_gradient"}
    gradients = tuple(Output(roles[inputs[k].role], inputs[k].name) for k in wanted)  # type: ignore[arg-type]
    jaxpr = forward.jaxpr
    unused = [fresh_var(var.aval) for var in closed.jaxpr.invars[len(jaxpr.invars) :]]
    same_inputs = close([*jaxpr.invars, *unused], jaxpr.outvars, jaxpr.eqns)
    return Derived(same_inputs, closed, entries, values, outputs + gradients)


def _has_gradient(entry: Input, var: Var) -> bool:
    return entry.role == "param" or (entry.role == "rows" and jnp.issubdtype(type_of(var).dtype, jnp.inexact))


def _with_gradients(forward: ClosedJaxpr, inputs: tuple[Input, ...], wanted: list[int]) -> ClosedJaxpr:
    """Return loss and other outputs, and the gradients of the loss with respect to some inputs."""
    scale = next(k for k, entry in enumerate(inputs) if entry.role == "loss_scale")
    function = jaxpr_as_fun(forward)

    def step(*values: Any) -> list[Any]:
        def loss_of(*changed: Any) -> tuple[Any, list[Any]]:
            operands = list(values)
            for k, value in zip(wanted, changed, strict=True):
                operands[k] = value
            loss, *others = function(*operands)
            return loss, others

        loss, pullback, others = jax.vjp(loss_of, *(values[k] for k in wanted), has_aux=True)
        return [loss, *others, *pullback(values[scale].astype(loss.dtype))]

    return make_jaxpr_of(step, *(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in forward.jaxpr.invars))


def share_reshapes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Derive each value that is reshaped for a graph operator from the reshaped value, so that it is stored once.

    Graph operators take rows as `[n, H, F]`; models mostly hold `[n, F]`. The stage that makes them would write and ship
    both. Here the other readers also read the operator's operand, and undo the change of shape, which is free.
    """
    jaxpr = closed.jaxpr
    made = makers(jaxpr.eqns)
    readers = Counter(variables([*(atom for equation in jaxpr.eqns for atom in equation.invars), *jaxpr.outvars]))
    reshapes: dict[Var, JaxprEqn] = {}  # by the original value
    for atom in variables(atom for equation in jaxpr.eqns if is_graph_operator(equation) for atom in equation.invars):
        maker = made.get(atom)
        if maker is None or maker.primitive.name != "reshape":
            continue
        for var in variables(maker.invars):
            # Not for consecutive reshapes, one of which would move before the value it reads.
            if var in made and made[var].primitive.name != "reshape" and readers[var] > 1:
                reshapes.setdefault(var, maker)
    moved = {id(reshape) for reshape in reshapes.values()}
    builder = Builder(closed)
    for equation in jaxpr.eqns:
        if id(equation) in moved:
            continue
        inner = {var: fresh_var(var.aval) for var in equation.outvars if var in reshapes}
        results = [inner.get(var, var) for var in equation.outvars]
        builder.equations.append(replace_equation(equation, equation.invars, results))
        for var, stored in inner.items():
            there = reshapes[var]
            builder.equations.append(replace_equation(there, [stored], there.outvars))
            back = {**there.params, "new_sizes": tuple(var.aval.shape)}
            builder.equations.append(replace_equation(there, there.outvars, [var], back))
    return builder.finish()


def constants_as_inputs(
    closed: ClosedJaxpr, inputs: tuple[Input, ...], constants: tuple[Any, ...]
) -> tuple[ClosedJaxpr, tuple[Input, ...], tuple[Any, ...]]:
    """Append the constants of a jaxpr to its inputs, each array once: XLA takes minutes to fold them, stage by stage.

    Args:
        closed: The jaxpr.
        inputs: Descriptions of its inputs.
        constants: Values of the inputs with role "constant".

    Returns:
        The jaxpr without constants, its inputs, and the values of the inputs with role "constant".
    """
    jaxpr = closed.jaxpr
    places = [var for var, entry in zip(jaxpr.invars, inputs, strict=True) if entry.role == "constant"]
    known = {id(value): var for value, var in zip(constants, places, strict=True)}
    added, values = [], list(constants)
    builder = Builder(closed)
    for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
        if id(value) not in known:
            known[id(value)] = var
            added.append(var)
            values.append(value)
        builder.replace(var, known[id(value)])
    for equation in jaxpr.eqns:
        builder.keep(equation)
    entries = tuple(Input("constant", f"constant {k}") for k in range(len(constants), len(values)))
    return builder.finish(inputs=[*jaxpr.invars, *added]), inputs + entries, tuple(values)
