"""Turns arrays that a model closes over into inputs, since XLA takes minutes to fold constants, stage by stage."""

from __future__ import annotations

from typing import Any

from dorylax.jax_internals import ClosedJaxpr, close, fresh_var, is_literal, replace_equation
from dorylax.program.tracing.traced import Input


def constants_as_inputs(
    closed: ClosedJaxpr, inputs: tuple[Input, ...], constants: tuple[Any, ...]
) -> tuple[ClosedJaxpr, tuple[Input, ...], tuple[Any, ...]]:
    """Append the constants of a jaxpr to its inputs, each array once.

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
    named: dict[Any, Any] = {}
    added, values = [], list(constants)
    for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
        if id(value) not in known:
            known[id(value)] = var
            added.append(var)
            values.append(value)
        named[var] = known[id(value)]

    def read(atom: Any) -> Any:
        return atom if is_literal(atom) else named.get(atom, atom)

    equations = [
        replace_equation(equation, [read(atom) for atom in equation.invars], equation.outvars)
        for equation in jaxpr.eqns
    ]
    whole = close([*jaxpr.invars, *added], [read(atom) for atom in jaxpr.outvars], equations)
    entries = tuple(Input("constant", f"constant {k}") for k in range(len(constants), len(values)))
    return whole, inputs + entries, tuple(values)


def with_unused_inputs(closed: ClosedJaxpr, like: ClosedJaxpr) -> ClosedJaxpr:
    """Append unused inputs to a jaxpr, to match another jaxpr with the same first inputs."""
    jaxpr = closed.jaxpr
    others = [fresh_var(var.aval) for var in like.jaxpr.invars[len(jaxpr.invars) :]]
    return close([*jaxpr.invars, *others], jaxpr.outvars, jaxpr.eqns)
