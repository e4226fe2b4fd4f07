"""Dead equations removed, equal ones merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, close, is_literal, replace_equation, variables


def simplify(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function of the same inputs with no dead and no repeated equation (flat jaxprs only)."""
    return without_dead(without_repeats(closed))


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
    return (type(atom.val), str(atom.val), atom.aval) if is_literal(atom) else atom


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
