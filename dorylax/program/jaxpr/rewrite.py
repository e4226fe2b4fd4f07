"""Reads and rewrites flat jaxprs: dependences between equations, new equations, simplification, and other sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dorylax.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    ShapedArray,
    Var,
    as_written_at,
    close,
    fresh_var,
    is_literal,
    make_jaxpr_of,
    replace_equation,
    size_at,
    symbols_of,
    variables,
)


def makers(equations: Iterable[JaxprEqn]) -> dict[Var, JaxprEqn]:
    """Return the equation that computes each value."""
    return {var: equation for equation in equations for var in equation.outvars}


def reached(
    equations: Iterable[JaxprEqn], start: Iterable[Var], *, stops: Callable[[JaxprEqn], bool] | None = None
) -> frozenset[Var]:
    """Return the values that depend on some values, and these; equations that stop dependence do not count."""
    found = set(start)
    for equation in equations:
        if not found.isdisjoint(variables(equation.invars)) and not (stops and stops(equation)):
            found.update(equation.outvars)
    return frozenset(found)


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


class Builder:
    """Rewrites a flat jaxpr equation by equation, on the same inputs.

    Args:
        closed: The jaxpr to rewrite.

    Attributes:
        equations: The equations of the new jaxpr.
    """

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.equations: list[JaxprEqn] = []
        self._old = closed
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
        self.equations.append(replace_equation(equation, operands, equation.outvars))

    def call(self, function: Callable[..., Any], operands: Sequence[Any], like: JaxprEqn) -> Any:
        """Inline a function without inner calls at the source line of `like`; return the atom of its result."""
        with as_written_at(like):
            (result,) = self.inline_function(function, operands)
        return result

    def inline_function(self, function: Callable[..., Any], operands: Sequence[Any]) -> list[Any]:
        """Inline a function; return the atoms of its results."""
        specs = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in operands]
        closed = make_jaxpr_of(function, *specs)
        return self.inline(closed.jaxpr, closed.consts, operands)

    def inline(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Add the equations of a jaxpr on other operands; return the atoms of its results."""
        env: dict[Var, Any] = dict(zip(jaxpr.invars, operands, strict=True))
        known = {id(value): var for var, value in self._consts.items()}
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            env[var] = known.setdefault(id(value), var if var in self._consts else fresh_var(var.aval))
            self._consts[env[var]] = value

        def read(atom: Any) -> Any:
            return atom if is_literal(atom) else env[atom]

        for equation in jaxpr.eqns:
            results = self.add(equation, [read(atom) for atom in equation.invars])
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def add(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        """Add an inlined equation on these operands; return the atoms of its results."""
        results = [fresh_var(var.aval) for var in equation.outvars]
        self.equations.append(replace_equation(equation, operands, results))
        return results

    def finish(self, outputs: Sequence[Any] | None = None, inputs: Sequence[Var] | None = None) -> ClosedJaxpr:
        """Return the new jaxpr; its inputs and outputs are by default those of the old one."""
        jaxpr = self._old.jaxpr
        results = [self.read(atom) for atom in jaxpr.outvars] if outputs is None else outputs
        consts = {var: value for var, value in self._consts.items() if var not in self._new}
        return close(jaxpr.invars if inputs is None else inputs, results, self.equations, consts)


def simplify(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the same function of the same inputs without dead equations, repeated equations, and casts of numbers.

    A number is written directly in the dtype to which it is cast, as JAX does in differentiation.
    """
    builder = Builder(closed)
    seen: dict[Any, list[Var]] = {}
    for equation in closed.jaxpr.eqns:
        operands = [builder.read(atom) for atom in equation.invars]
        if equation.primitive.name == "convert_element_type" and is_literal(operands[0]):
            aval = equation.outvars[0].aval
            builder.replace(equation.outvars[0], Literal(np.asarray(operands[0].val).astype(aval.dtype)[()], aval))
            continue
        key = _meaning(equation, operands)
        if key is not None and key in seen:
            for var, same in zip(equation.outvars, seen[key], strict=True):
                builder.replace(var, same)
            continue
        if key is not None:
            seen[key] = list(equation.outvars)
        builder.keep(equation)
    return without_dead(builder.finish())


def without_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Remove equations that the outputs do not depend on."""
    jaxpr = closed.jaxpr
    kept = live(jaxpr.eqns, jaxpr.outvars)
    read = {var for equation in kept for var in variables(equation.invars)}
    read |= set(variables(jaxpr.outvars))
    consts = {var: value for var, value in zip(jaxpr.constvars, closed.consts, strict=True) if var in read}
    return close(jaxpr.invars, jaxpr.outvars, kept, consts)


def _meaning(equation: JaxprEqn, operands: Sequence[Any]) -> Any:
    """Return a key that is equal for equations that compute the same; None if that is undecidable."""
    if equation.effects:
        return None
    key = (
        equation.primitive,
        tuple((str(np.asarray(atom.val)), atom.aval) if is_literal(atom) else atom for atom in operands),
        tuple(sorted(equation.params.items(), key=lambda item: item[0])),
        tuple(var.aval for var in equation.outvars),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def instantiate(closed: ClosedJaxpr, sizes: Mapping[str, Any]) -> ClosedJaxpr:
    """Return the jaxpr with these values of its symbols, `{"n": V, "e": E}`: numbers, or dimensions of another scope."""
    return _Instance(closed, sizes).whole()


class _Instance(Builder):
    def __init__(self, closed: ClosedJaxpr, sizes: Mapping[str, Any]) -> None:
        super().__init__(closed)
        self._sizes = sizes

    def whole(self) -> ClosedJaxpr:
        jaxpr = self._old.jaxpr
        inputs = [self._var(var) for var in jaxpr.invars]
        return self.finish(self.inline(jaxpr, self._old.consts, inputs), inputs)

    def add(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        results = [self._var(var) for var in equation.outvars]
        params = {name: self._value(value) for name, value in equation.params.items()}
        self.equations.append(replace_equation(equation, operands, results, params))
        return results

    def _var(self, var: Var) -> Var:
        return fresh_var(self._aval(var.aval))

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
            return instantiate(value, self._sizes)
        if isinstance(value, Jaxpr):
            return instantiate(ClosedJaxpr(value, ()), self._sizes).jaxpr
        if isinstance(value, ShapedArray):
            return self._aval(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._value, value))
        if type(value) in (tuple, list):
            return type(value)(self._value(item) for item in value)
        return value
