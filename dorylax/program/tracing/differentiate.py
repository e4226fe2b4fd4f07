"""Derives loss and gradients from a flat forward jaxpr: forward and backward pass in one list of equations.

Differentiation precedes splitting, so that gradients are ordinary equations. The same code then checks, hoists, prunes and
moves equations in both directions. The backward pass consists of the values that depend on the cotangent of the loss, which
is a separate input (`loss_scale`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dorylax.jax_internals import ClosedJaxpr, jaxpr_as_fun, make_jaxpr_of
from dorylax.program.jaxpr.simplify import simplify
from dorylax.program.rows.check import infer
from dorylax.program.tracing.complete_sums import complete_sums
from dorylax.program.tracing.constants import constants_as_inputs, with_unused_inputs
from dorylax.program.tracing.flatten import flatten
from dorylax.program.tracing.padding import without_padding
from dorylax.program.tracing.row_numbers import RowNumbers
from dorylax.program.tracing.shared_reshapes import share_reshapes
from dorylax.program.tracing.traced import Input, Output, whole_outputs


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
