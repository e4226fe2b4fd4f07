"""Replaces the symbols n and e in a jaxpr's shapes and parameters with numbers, or with other symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    ShapedArray,
    Var,
    close,
    fresh_var,
    is_literal,
    replace_equation,
    size_at,
    symbols_of,
)


def instantiate(closed: ClosedJaxpr, sizes: Mapping[str, Any]) -> ClosedJaxpr:
    """Return the jaxpr with these values of its symbols, `{"n": V, "e": E}`: numbers, or dimensions of another scope."""
    return _Instance(sizes).closed(closed)


class _Instance:
    def __init__(self, sizes: Mapping[str, Any]) -> None:
        self._sizes = sizes

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        env: dict[Var, Var] = {}

        def new(var: Any) -> Var:
            env[var] = fresh_var(self._aval(var.aval))
            return env[var]

        def read(atom: Any) -> Any:
            return atom if is_literal(atom) else env[atom]

        consts = {new(var): value for var, value in zip(jaxpr.constvars, closed.consts, strict=True)}
        inputs = [new(var) for var in jaxpr.invars]
        equations = [
            replace_equation(
                equation,
                [read(atom) for atom in equation.invars],
                [new(var) for var in equation.outvars],
                {name: self._value(value) for name, value in equation.params.items()},
            )
            for equation in jaxpr.eqns
        ]
        return close(inputs, [read(atom) for atom in jaxpr.outvars], equations, consts)

    def _aval(self, aval: Any) -> Any:
        shape = getattr(aval, "shape", ())
        if not any(symbols_of(size) for size in shape):
            return aval
        return aval.update(shape=tuple(self._dim(size) for size in shape))

    def _dim(self, dim: Any) -> Any:
        size = size_at(dim, self._sizes)
        return size if symbols_of(size) else int(size)

    def _value(self, value: Any) -> Any:
        if symbols_of(value):
            return self._dim(value)
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.closed(ClosedJaxpr(value, ())).jaxpr
        if isinstance(value, ShapedArray):
            return self._aval(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._value, value))
        if type(value) in (tuple, list):
            return type(value)(self._value(item) for item in value)
        return value
