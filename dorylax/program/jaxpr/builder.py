"""Writes flat jaxprs: old equations on new operands, and small inlined functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax

from dorylax.jax_internals import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    as_written_at,
    close,
    fresh_var,
    is_literal,
    make_jaxpr_of,
    replace_equation,
)


@final
class Builder:
    """Rewrites a flat jaxpr equation by equation, on the same inputs.

    Args:
        closed: The jaxpr to rewrite.
    """

    def __init__(self, closed: ClosedJaxpr) -> None:
        self._old = closed
        self._equations: list[JaxprEqn] = []
        self._consts = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        self._new: dict[Var, Any] = {}

    def read(self, atom: Any) -> Any:
        """Return the replacement of an atom of the old jaxpr, by default the atom."""
        return atom if is_literal(atom) else self._new.get(atom, atom)

    def replace(self, var: Var, atom: Any) -> None:
        """Replace `var` by `atom` in all later reads."""
        self._new[var] = atom

    def keep(self, equation: JaxprEqn, operands_at: Mapping[int, Any] | None = None) -> None:
        """Add an equation of the old jaxpr on the replacements of its operands; some may be given by position."""
        given = operands_at or {}
        operands = [given.get(k, self.read(atom)) for k, atom in enumerate(equation.invars)]
        self._equations.append(replace_equation(equation, operands, equation.outvars))

    def call(self, function: Callable[..., Any], operands: Sequence[Any], like: JaxprEqn) -> Any:
        """Inline a function without inner calls at the source line of `like`; return the atom of its result."""
        with as_written_at(like):
            specs = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in operands]
            inner = make_jaxpr_of(function, *specs)
        local: dict[Var, Any] = dict(zip(inner.jaxpr.invars, operands, strict=True))
        for var, value in zip(inner.jaxpr.constvars, inner.consts, strict=True):
            local[var] = fresh_var(var.aval)
            self._consts[local[var]] = value
        for equation in inner.jaxpr.eqns:
            results = [fresh_var(var.aval) for var in equation.outvars]
            atoms = [atom if is_literal(atom) else local[atom] for atom in equation.invars]
            self._equations.append(replace_equation(equation, atoms, results))
            local.update(zip(equation.outvars, results, strict=True))
        (result,) = inner.jaxpr.outvars
        return result if is_literal(result) else local[result]

    def finish(self) -> ClosedJaxpr:
        """Return the new jaxpr."""
        jaxpr = self._old.jaxpr
        return close(jaxpr.invars, [self.read(atom) for atom in jaxpr.outvars], self._equations, self._consts)
