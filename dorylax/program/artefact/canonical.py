"""The canonical form of a stage: equal layers give the same function, so that they share one artefact.

Two stages are alike if they differ only in names, in the order of inputs, outputs and independent equations, or in the space
of their rows. They may also differ in scalar float literals: GCNII's β_l = log(θ/l + 1) is a different number in each layer.
`share` turns the differing literals into additional inputs, and keeps the others as constants.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dorylax.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    ShapedArray,
    Var,
    close,
    fresh_var,
    is_literal,
    replace_equation,
    symbols_of,
)
from dorylax.program.jaxpr.rewrite import instantiate

ROWS = "rows"
"""Symbol of every canonical stage, in place of n or e."""


class LiteralOperand(NamedTuple):
    """Position of a literal: its equation and operand."""

    equation: int
    operand: int


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Canonical:
    """A stage in canonical form.

    Attributes:
        key: Equal for stages that are alike except for their literals. It is the same in every process, unless a parameter
            of an equation is an object without a value, such as a Python function.
        inputs: For each used input in canonical order, its position among the stage's inputs.
        outputs: For each output in canonical order, its position among the stage's outputs.
        equations: Equations in canonical order, on the stage's variables and symbol.
        literals: Positions of scalar float literals in `equations`.
        values: Exact values of the literals.
        symbol: The stage's symbol; None if no shape has one.
        stage: The stage.
    """

    key: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    equations: tuple[JaxprEqn, ...]
    literals: tuple[LiteralOperand, ...]
    values: tuple[float, ...]
    symbol: str | None
    stage: ClosedJaxpr

    def function(self, lifted: Sequence[int] = ()) -> ClosedJaxpr:
        """Return the canonical function, over the symbol `ROWS` in a new scope.

        Args:
            lifted: Positions in `literals` of those that become inputs, after all others, in this order.
        """
        equations = list(self.equations)
        added: list[Var] = []
        for k in lifted:
            place = self.literals[k]
            equation = equations[place.equation]
            operands: list[Any] = list(equation.invars)
            added.append(fresh_var(ShapedArray((), operands[place.operand].aval.dtype)))
            operands[place.operand] = added[-1]
            equations[place.equation] = replace_equation(equation, operands, equation.outvars)
        jaxpr = self.stage.jaxpr
        inputs = [jaxpr.invars[k] for k in self.inputs]
        whole = close([*inputs, *added], [jaxpr.outvars[k] for k in self.outputs], equations)
        if self.symbol is None:
            return whole
        (rows,) = export.symbolic_shape(ROWS)
        return instantiate(whole, {self.symbol: rows})


def canonical(stage: ClosedJaxpr) -> Canonical:
    """Return the canonical form of a stage's function.

    Outputs are ordered by the hash of their computation, ties in their given order; equations depth first from the outputs,
    with operands in order; inputs by first use. Equations that no output needs are dropped.

    Raises:
        ValueError: The function closes over arrays, or has rows of both spaces.
    """
    jaxpr = stage.jaxpr
    if jaxpr.constvars:
        raise ValueError(f"a stage closes over {len(jaxpr.constvars)} arrays: make them inputs")
    writer = _Writer()
    meanings = [_meaning(writer, equation) for equation in jaxpr.eqns]
    outputs = _output_order(writer, jaxpr, meanings)
    order = _depth_first(jaxpr, outputs)

    number: dict[Var, int] = {}
    inputs: list[int] = []
    position = {var: k for k, var in enumerate(jaxpr.invars)}
    text: list[str] = []
    literals: list[LiteralOperand] = []
    values: list[float] = []

    def read(atom: Any) -> str:
        if atom not in number:
            number[atom] = len(number)
            inputs.append(position[atom])
            text.append(writer.aval(atom.aval))
        return f"v{number[atom]}"

    for place, k in enumerate(order):
        equation = jaxpr.eqns[k]
        operands = []
        for slot, atom in enumerate(equation.invars):
            if not is_literal(atom):
                operands.append(read(atom))
            elif _may_be_lifted(atom):
                literals.append(LiteralOperand(place, slot))
                values.append(float(np.asarray(atom.val)))
                operands.append(writer.aval(atom.aval))
            else:
                operands.append(writer.literal(atom))
        text.append(f"{meanings[k]}({','.join(operands)})")
        for var in equation.outvars:
            number[var] = len(number)
    ends = [writer.literal(atom) if is_literal(atom) else read(atom) for atom in (jaxpr.outvars[k] for k in outputs)]
    if len(writer.symbols) > 1:
        raise ValueError(f"a stage has rows of one space, got the symbols {', '.join(sorted(writer.symbols))}")
    return Canonical(
        key=_digest("\n".join([*text, *ends])),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        equations=tuple(jaxpr.eqns[k] for k in order),
        literals=tuple(literals),
        values=tuple(values),
        symbol=next(iter(writer.symbols), None),
        stage=stage,
    )


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """One stage of a group.

    Attributes:
        stage: Position of the stage in the argument of `share`.
        inputs: For each input of the group's function, its position among the stage's inputs; the literals follow.
        literals: Values of the inputs that are literals in the stage.
        outputs: For each output of the group's function, its position among the stage's outputs.
    """

    stage: int
    inputs: tuple[int, ...]
    literals: tuple[float, ...]
    outputs: tuple[int, ...]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Stages that share a function.

    Attributes:
        function: Function of inputs and literals, over the symbol `ROWS`.
        members: The stages, in order.
    """

    function: ClosedJaxpr
    members: tuple[Member, ...]


def share(stages: Sequence[ClosedJaxpr]) -> list[Group]:
    """Group stages that are alike except for scalar float literals; those that differ within a group become inputs.

    Raises:
        ValueError: See `canonical`.
    """
    forms = [canonical(stage) for stage in stages]
    alike: dict[str, list[int]] = defaultdict(list)
    for k, form in enumerate(forms):
        alike[form.key].append(k)
    groups = []
    for indices in alike.values():
        # Compared as text, so that a NaN equals itself, and 0 and -0 differ.
        columns = zip(*([value.hex() for value in forms[k].values] for k in indices), strict=True)
        lifted = [place for place, column in enumerate(columns) if len(set(column)) > 1]
        members = [
            Member(k, forms[k].inputs, tuple(forms[k].values[place] for place in lifted), forms[k].outputs)
            for k in indices
        ]
        groups.append(Group(forms[indices[0]].function(lifted), tuple(members)))
    return groups


def _output_order(writer: _Writer, jaxpr: Jaxpr, meanings: Sequence[str]) -> list[int]:
    """Order outputs by the hash of their computation, so that their order does not depend on that of the equations."""
    hashes: dict[Var, str] = {var: writer.aval(var.aval) for var in jaxpr.invars}

    def of(atom: Any) -> str:
        return writer.aval(atom.aval) if is_literal(atom) else hashes[atom]

    for equation, meaning in zip(jaxpr.eqns, meanings, strict=True):
        whole = _digest(f"{meaning}({','.join(of(atom) for atom in equation.invars)})")
        hashes.update((var, f"{whole}.{k}") for k, var in enumerate(equation.outvars))
    return sorted(range(len(jaxpr.outvars)), key=lambda k: (of(jaxpr.outvars[k]), k))


def _depth_first(jaxpr: Jaxpr, outputs: Sequence[int]) -> list[int]:
    maker = {var: k for k, equation in enumerate(jaxpr.eqns) for var in equation.outvars}
    order: dict[int, None] = {}
    # An explicit stack, since stages can be deeper than Python's recursion limit.
    stack: list[tuple[Any, bool]] = [(jaxpr.outvars[k], False) for k in reversed(outputs)]
    while stack:
        atom, ready = stack.pop()
        k = None if is_literal(atom) else maker.get(atom)
        if k is None or k in order:
            continue
        if ready:
            order[k] = None
        else:
            stack.append((atom, True))
            stack.extend((operand, False) for operand in reversed(jaxpr.eqns[k].invars))
    return list(order)


def _may_be_lifted(atom: Any) -> bool:
    return atom.aval.shape == () and bool(jnp.issubdtype(atom.aval.dtype, jnp.floating))


# Parameters that compute a function with a custom derivative; its other parameters only differentiate it.
_COMPUTED_BY = {"custom_jvp_call": ("call_jaxpr",), "custom_vjp_call": ("call_jaxpr",)}


def _meaning(writer: _Writer, equation: JaxprEqn) -> str:
    """Return the operation and its parameters, as text."""
    name = equation.primitive.name
    names = _COMPUTED_BY.get(name, sorted(equation.params))
    return f"{name}[{','.join(f'{key}={writer.value(equation.params[key])}' for key in names)}]"


class _Writer:
    """Writes values so that equal texts mean equal values."""

    def __init__(self) -> None:
        self.symbols: set[str] = set()
        self._dims: dict[Any, str] = {}
        self._avals: dict[Any, str] = {}

    def aval(self, aval: Any) -> str:
        """Return a type without `weak_type`, which existing equations ignore."""
        key = (aval.dtype, aval.shape)
        if key not in self._avals:
            self._avals[key] = f"{aval.dtype}[{','.join(self.value(size) for size in aval.shape)}]"
        return self._avals[key]

    def literal(self, atom: Any) -> str:
        """Return a constant operand."""
        return f"{self.aval(atom.aval)}:{np.asarray(atom.val).tobytes().hex()}"

    def value(self, value: Any) -> str:
        """Return a parameter of an equation."""
        if value is None or isinstance(value, (bool, int, str, bytes)):
            # The class name distinguishes enumerations of integers from their numbers.
            return f"{type(value).__name__}.{value!r}" if isinstance(value, enum.Enum) else repr(value)
        if isinstance(value, (tuple, list)):
            return f"{type(value).__name__}({','.join(map(self.value, value))})"
        if symbols_of(value):
            return self._dim(value)
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, np.dtype):
            return f"dtype {value}"
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, ClosedJaxpr):
            return self._jaxpr(value.jaxpr, value.consts)
        if isinstance(value, Jaxpr):
            return self._jaxpr(value, ())
        if isinstance(value, ShapedArray):
            return self.aval(value)
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            array = np.asarray(value)
            return f"{array.dtype}{array.shape}:{_digest(array.tobytes().hex())}"
        if isinstance(value, dict):
            return f"{{{','.join(f'{self.value(key)}:{self.value(value[key])}' for key in sorted(value))}}}"
        if isinstance(value, jax.sharding.Sharding):
            return repr(value)
        if isinstance(value, type):
            return f"{value.__module__}.{value.__qualname__}"
        # An object of unknown meaning equals only itself.
        return f"{type(value).__name__}@{id(value)}"

    def _dim(self, dim: Any) -> str:
        if dim not in self._dims:
            text = str(dim)
            for symbol in symbols_of(dim):
                self.symbols.add(symbol)
                text = re.sub(rf"\b{symbol}\b", ROWS, text)
            self._dims[dim] = text
        return self._dims[dim]

    def _jaxpr(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> str:
        """Return an inner function, with variables numbered in order and literals with their values."""
        number = {var: k for k, var in enumerate([*jaxpr.constvars, *jaxpr.invars])}
        text = [self.value(value) for value in consts]
        text.extend(self.aval(var.aval) for var in number)

        def read(atom: Any) -> str:
            return self.literal(atom) if is_literal(atom) else f"v{number[atom]}"

        for equation in jaxpr.eqns:
            text.append(f"{_meaning(self, equation)}({','.join(map(read, equation.invars))})")
            number.update((var, len(number) + k) for k, var in enumerate(equation.outvars))
        return f"{{{len(consts)};{';'.join(text)};{','.join(map(read, jaxpr.outvars))}}}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
