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
from collections import defaultdict
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
from dorylax.program.jaxpr.builder import Builder
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.jaxpr.simplify import simplify
from dorylax.program.rows.check import infer
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tracing.complete_sums import complete_sums
from dorylax.program.tracing.constants import constants_as_inputs, with_unused_inputs
from dorylax.program.tracing.flatten import flatten
from dorylax.program.tracing.row_numbers import RowNumbers
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
    cotangents = {var for var, entry in entries if entry.role == "weights"}
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        if any(var in cotangents for var in variables(equation.invars)):
            cotangents.update(equation.outvars)
        if not any(isinstance(types[var], Summed) for var in equation.outvars):
            builder.keep(equation)
            continue
        rows = [k for k, atom in enumerate(equation.invars) if _has_rows(atom, types)]
        # Values independent of the cotangent are those of the copied row, which are finite if the model is.
        chosen = [k for k in rows if equation.invars[k] in cotangents] or rows
        operands = {k: _selected(builder, equation, k, types, real) for k in chosen}
        builder.keep(equation, operands)
    return builder.finish()


def _has_rows(atom: Any, types: dict[Var, RowType]) -> bool:
    return any(isinstance(types[var], Rows) for var in variables([atom]))


def _selected(builder: Builder, equation: JaxprEqn, place: int, types: dict[Var, RowType], real: Any) -> Any:
    atom = equation.invars[place]
    found = types[variables([atom])[0]]
    assert isinstance(found, Rows)
    select = _select(tuple(type_of(atom).shape), found.axis, found.factor)
    return builder.call(select, [builder.read(atom), builder.read(real[found.space])], equation)


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


def differentiate(
    forward: ClosedJaxpr,
    inputs: tuple[Input, ...],
    constants: tuple[Any, ...],
    outputs: tuple[Output, ...],
    *,
    input_gradients: bool,
    fused: bool = False,
) -> Derived:
    """Add the gradients of the loss.

    Args:
        forward: Flat forward pass with the loss as its first output.
        inputs: Descriptions of its inputs.
        constants: Values of the inputs with role "constant".
        outputs: Descriptions of its outputs.
        input_gradients: Whether to compute gradients with respect to arrays of rows, in addition to parameters.
        fused: Whether fused operators stay.

    Raises:
        SplitError: A gradient mixes rows.
    """
    avals = [var.aval for var in forward.jaxpr.invars]
    wanted = [
        k
        for k, (entry, aval) in enumerate(zip(inputs, avals, strict=True))
        if entry.role == "param"
        or (input_gradients and entry.role == "rows" and jnp.issubdtype(aval.dtype, jnp.inexact))
    ]
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

    specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    row_numbers = RowNumbers.of(inputs)
    closed = simplify(flatten(make_jaxpr_of(step, *specs), custom=True, row_numbers=row_numbers, fused=fused))
    closed, entries, values = constants_as_inputs(closed, inputs, constants)
    closed = _splittable(closed, entries, outputs, phase="in the gradient: ")
    roles = {"param": "gradient", "rows": "input_gradient"}
    gradients = tuple(Output(roles[inputs[k].role], inputs[k].name) for k in wanted)  # type: ignore[arg-type]
    return Derived(with_unused_inputs(forward, closed), closed, entries, values, outputs + gradients)


def undifferentiated(
    forward: ClosedJaxpr,
    inputs: tuple[Input, ...],
    constants: tuple[Any, ...],
    outputs: tuple[Output, ...],
    *,
    fused: bool = False,
) -> Derived:
    """Build the step of a model without a loss: the forward pass without opaque equations."""
    closed = simplify(flatten(forward, custom=True, row_numbers=RowNumbers.of(inputs), fused=fused))
    closed, entries, values = constants_as_inputs(closed, inputs, constants)
    closed = _splittable(closed, entries, outputs)
    return Derived(with_unused_inputs(forward, closed), closed, entries, values, outputs)


def _splittable(
    closed: ClosedJaxpr, inputs: tuple[Input, ...], outputs: tuple[Output, ...], *, phase: str = ""
) -> ClosedJaxpr:
    """Complete sums and exclude padding, so that the function stays correct if intervals compute it."""
    closed = complete_sums(closed, inputs, whole=whole_outputs(outputs), phase=phase)
    types = infer(closed.jaxpr, [entry.row_type for entry in inputs], phase=phase)
    return share_reshapes(simplify(without_padding(closed, inputs, types)))


def share_reshapes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Derive each value that is reshaped for a graph operator from the reshaped value, so that it is stored once.

    Graph operators take rows as `[n, H, F]`; models mostly hold `[n, F]`. The stage that makes them would write and ship
    both. Here the other readers also read the operator's operand, and undo the change of shape, which is free.
    """
    jaxpr = closed.jaxpr
    makers = {var: equation for equation in jaxpr.eqns for var in equation.outvars}
    operands = (atom for equation in jaxpr.eqns if is_graph_operator(equation) for atom in equation.invars)
    reshapes: dict[Var, JaxprEqn] = {}  # by the original value
    for atom in operands:
        maker = None if is_literal(atom) else makers.get(atom)
        if maker is None or maker.primitive.name != "reshape":
            continue
        source = makers.get(maker.invars[0])
        # Not for consecutive reshapes, one of which would move before the value it reads.
        if source is not None and source.primitive.name != "reshape":
            reshapes.setdefault(maker.invars[0], maker)
    readers: dict[Var, int] = defaultdict(int)
    for atom in [*(atom for equation in jaxpr.eqns for atom in equation.invars), *jaxpr.outvars]:
        if not is_literal(atom):
            readers[atom] += 1
    shared = {var: reshape for var, reshape in reshapes.items() if readers[var] > 1}
    moved = {id(reshape) for reshape in shared.values()}
    equations: list[JaxprEqn] = []
    for equation in jaxpr.eqns:
        if id(equation) in moved:
            continue
        own = [var for var in equation.outvars if var in shared]
        inner = {var: fresh_var(var.aval) for var in own}
        results = [inner.get(var, var) for var in equation.outvars]
        equations.append(replace_equation(equation, equation.invars, results) if own else equation)
        for var in own:
            there = shared[var]
            equations.append(replace_equation(there, [inner[var]], there.outvars))
            back = {**there.params, "new_sizes": tuple(var.aval.shape)}
            equations.append(replace_equation(there, there.outvars, [var], back))
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    return close(jaxpr.invars, jaxpr.outvars, equations, consts)
