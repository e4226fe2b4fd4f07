"""Dead equations removed, equal ones merged, casts of numbers done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Literal, Var, close, is_literal, replace_equation, variables


def simplify(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function of the same inputs with no dead, no repeated and no such equation (flat jaxprs only)."""
    return without_dead(without_repeats(with_casts_done(closed)))


def without_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Keeps what the outputs need."""
    jaxpr = closed.jaxpr
    kept = live(jaxpr.eqns, jaxpr.outvars)
    read = {atom for equation in kept for atom in equation.invars if not is_literal(atom)}
    read |= set(variables(jaxpr.outvars))
    consts = {var: value for var, value in zip(jaxpr.constvars, closed.consts, strict=True) if var in read}
    return close(jaxpr.invars, jaxpr.outvars, kept, consts)


def live(equations: Sequence[JaxprEqn], wanted: Iterable[Any]) -> list[JaxprEqn]:
    """Those equations, in order, that the wanted atoms depend on."""
    needed = set(variables(wanted))
    kept = []
    for equation in reversed(equations):
        if any(var in needed for var in equation.outvars):
            kept.append(equation)
            needed.update(variables(equation.invars))
    return kept[::-1]


def with_casts_done(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Writes a number in the dtype that it is cast to, as JAX does when it differentiates."""
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
    """Computes once what several equations compute alike."""
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
    """Equal for operands of equal value."""
    return (str(np.asarray(atom.val)), atom.aval) if is_literal(atom) else atom


def _meaning(equation: JaxprEqn, operands: Sequence[Any]) -> Any:
    """Equal for equations that compute the same; None where that cannot be told."""
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
