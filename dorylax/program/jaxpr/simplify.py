"""Simplifies flat jaxprs: removes dead equations, merges equal ones, and evaluates casts of numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Literal, Var, close, is_literal, replace_equation, variables


def simplify(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the same function of the same inputs without dead equations, repeated equations, and casts of numbers."""
    return without_dead(without_repeats(with_casts_done(closed)))


def without_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Remove equations that the outputs do not depend on."""
    jaxpr = closed.jaxpr
    kept = live(jaxpr.eqns, jaxpr.outvars)
    read = {atom for equation in kept for atom in equation.invars if not is_literal(atom)}
    read |= set(variables(jaxpr.outvars))
    consts = {var: value for var, value in zip(jaxpr.constvars, closed.consts, strict=True) if var in read}
    return close(jaxpr.invars, jaxpr.outvars, kept, consts)


def live(equations: Sequence[JaxprEqn], wanted: Iterable[Any], known: Collection[Var] = ()) -> list[JaxprEqn]:
    """Return the equations, in order, that compute the wanted atoms from the inputs and the known values."""
    known = set(known)
    needed = set(variables(wanted)) - known
    kept = []
    for equation in reversed(equations):
        if not needed.isdisjoint(equation.outvars):
            kept.append(equation)
            needed.update(var for var in variables(equation.invars) if var not in known)
    return kept[::-1]


def with_casts_done(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Write a number directly in the dtype to which it is cast, as JAX does in differentiation."""
    env: dict[Var, Any] = {}

    def read(atom: Any) -> Any:
        return atom if is_literal(atom) else env.get(atom, atom)

    equations = []
    for equation in closed.jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        if equation.primitive.name == "convert_element_type" and is_literal(operands[0]):
            aval = equation.outvars[0].aval
            env[equation.outvars[0]] = Literal(np.asarray(operands[0].val).astype(aval.dtype)[()], aval)
        else:
            equations.append(replace_equation(equation, operands, equation.outvars))
    outputs = [read(atom) for atom in closed.jaxpr.outvars]
    consts = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return close(closed.jaxpr.invars, outputs, equations, consts)


def without_repeats(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Merge equations that compute the same values."""
    env: dict[Var, Any] = {}
    seen: dict[Any, list[Var]] = {}
    equations = []

    def read(atom: Any) -> Any:
        return atom if is_literal(atom) else env.get(atom, atom)

    for equation in closed.jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        key = _meaning(equation, operands)
        if key is not None and key in seen:
            env.update(zip(equation.outvars, seen[key], strict=True))
            continue
        if key is not None:
            seen[key] = list(equation.outvars)
        equations.append(replace_equation(equation, operands, equation.outvars))
    outputs = [read(atom) for atom in closed.jaxpr.outvars]
    consts = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return close(closed.jaxpr.invars, outputs, equations, consts)


def atom_key(atom: Any) -> Any:
    """Return a key that is equal for operands of equal value."""
    return (str(np.asarray(atom.val)), atom.aval) if is_literal(atom) else atom


def _meaning(equation: JaxprEqn, operands: Sequence[Any]) -> Any:
    """Return a key that is equal for equations that compute the same; None if that is undecidable."""
    if equation.effects:
        return None
    key = (
        equation.primitive,
        tuple(atom_key(atom) for atom in operands),
        tuple(sorted(equation.params.items(), key=lambda item: item[0])),
        tuple(var.aval for var in equation.outvars),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key
