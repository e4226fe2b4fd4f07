"""Completes sums over all rows within a model, such as those of BatchNorm, where they must be whole.

A sum over vertices or edges is computed in parts, one for each interval (`rows.types.Summed`), and parts can only go through
linear arithmetic. Any other reader of such a sum needs all of it. `complete_sums` finds these readers, in the forward pass
and in the gradient alike, and inserts `global_sum`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dorylax.jax_internals import (
    ClosedJaxpr,
    JaxprEqn,
    Var,
    close,
    equation_like,
    fresh_var,
    is_literal,
    replace_equation,
    type_of,
    variables,
)
from dorylax.program.jaxpr.global_sum import GLOBAL_SUM, is_global_sum
from dorylax.program.rows.check import Wholes, infer
from dorylax.program.rows.types import Free, RowType, Summed
from dorylax.program.tracing.traced import Input


def complete_sums(
    closed: ClosedJaxpr, inputs: Sequence[Input], *, whole: Sequence[int] = (), phase: str = ""
) -> ClosedJaxpr:
    """Complete sums over rows that an equation reads but cannot process part by part.

    Args:
        closed: A flat jaxpr without opaque equations: a forward pass, or one with its gradient.
        inputs: Descriptions of its inputs.
        whole: Positions of outputs that must be whole, as state must. All other outputs are added up over intervals.
        phase: Prefix of error messages.

    Raises:
        SplitError: Rows are mixed in another way, or a result that is added up has a term without rows.
    """
    row_types = [entry.row_type for entry in inputs]
    wholes = Wholes(_backward(closed, inputs))
    types = infer(closed.jaxpr, row_types, phase=phase, wholes=wholes)
    ends = [k for k in whole if _is_sum(types, closed.jaxpr.outvars[k])]
    if not wholes.operands and not ends:
        return closed
    results = [atom for k, atom in enumerate(closed.jaxpr.outvars) if k not in whole]
    if any(_is_term(types, atom) for atom in results):
        infer(closed.jaxpr, row_types, phase=phase)  # raises an error that locates the term
    at_uses = _completed_at_uses(closed, wholes, ends)
    results = [atom for k, atom in enumerate(at_uses.jaxpr.outvars) if k not in whole]
    return _completed_at_origins(at_uses, infer(at_uses.jaxpr, row_types, phase=phase), results)


def _backward(closed: ClosedJaxpr, inputs: Sequence[Input]) -> frozenset[Var]:
    """Values that depend on the cotangent of the loss. In a product of two sums, such a value may stay in parts."""
    reached = {var for var, entry in zip(closed.jaxpr.invars, inputs, strict=True) if entry.role == "loss_scale"}
    for equation in closed.jaxpr.eqns:
        if any(not is_literal(atom) and atom in reached for atom in equation.invars):
            reached.update(equation.outvars)
    return frozenset(reached)


def _is_sum(types: Mapping[Var, RowType], atom: Any) -> bool:
    return not is_literal(atom) and isinstance(types[atom], Summed)


def _is_term(types: Mapping[Var, RowType], atom: Any) -> bool:
    """Whether an atom is a term that would be added once for each interval."""
    return not is_literal(atom) and isinstance(kind := types[atom], Free) and not kind.zero


def _completed_at_uses(closed: ClosedJaxpr, wholes: Wholes, ends: Sequence[int]) -> ClosedJaxpr:
    """Insert a complete sum for each operand that must be whole, and for these outputs."""
    jaxpr = closed.jaxpr
    equations: list[JaxprEqn] = []
    made: dict[Var, Var] = {}
    stands: dict[Var, Var] = {}  # replacements for all later equations

    def complete(part: Var, like: JaxprEqn) -> Var:
        if part not in made:
            made[part] = fresh_var(part.aval)
            equations.append(equation_like(like, GLOBAL_SUM, [part], [made[part]]))
            if part not in wholes.parts:
                stands[part] = made[part]
        return made[part]

    for place, equation in enumerate(jaxpr.eqns):
        operands = [atom if is_literal(atom) else stands.get(atom, atom) for atom in equation.invars]
        for k in wholes.operands.get(place, ()):
            operands[k] = complete(equation.invars[k], equation)
        equations.append(replace_equation(equation, operands, equation.outvars))
    outputs = [atom if is_literal(atom) else stands.get(atom, atom) for atom in jaxpr.outvars]
    for k in ends:
        outputs[k] = complete(jaxpr.outvars[k], jaxpr.eqns[-1])
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    return close(jaxpr.invars, outputs, equations, consts)


def _completed_at_origins(closed: ClosedJaxpr, types: Mapping[Var, RowType], results: Iterable[Any]) -> ClosedJaxpr:
    """Complete sums where rows are added up, so that later equations compute with whole sums.

    Skipped if a part of the sum is itself a result, as a parameter's gradient is, or if more bytes would travel.
    """
    jaxpr = closed.jaxpr
    chosen, early = _lifted(closed, types, results)
    equations: list[JaxprEqn] = []
    stands: dict[Var, Var] = {}
    for equation in jaxpr.eqns:
        operands = [atom if is_literal(atom) else stands.get(atom, atom) for atom in equation.invars]
        if is_global_sum(equation) and equation.invars[0] in chosen:
            stands[equation.outvars[0]] = operands[0]
            continue
        equations.append(replace_equation(equation, operands, equation.outvars))
        for var in equation.outvars:
            if var in early:
                stands[var] = fresh_var(var.aval)
                equations.append(equation_like(equation, GLOBAL_SUM, [var], [stands[var]]))
    outputs = [atom if is_literal(atom) else stands.get(atom, atom) for atom in jaxpr.outvars]
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    return close(jaxpr.invars, outputs, equations, consts)


def _lifted(
    closed: ClosedJaxpr, types: Mapping[Var, RowType], results: Iterable[Any]
) -> tuple[frozenset[Var], frozenset[Var]]:
    """Return the sums that are whole once others are completed at their origins, and those others."""
    group: dict[Var, Var] = {}

    def find(var: Var) -> Var:
        while group.setdefault(var, var) is not var:
            var = group[var]
        return var

    origins: list[Var] = []
    uses: list[Var] = []
    for equation in closed.jaxpr.eqns:
        parts = [var for var in variables(equation.invars) if isinstance(types[var], Summed)]
        sums = [var for var in equation.outvars if isinstance(types[var], Summed)]
        for var in (*parts, *sums):
            group[find(var)] = find((*parts, *sums)[0])
        origins.extend(sums if not parts else ())
        uses.extend(parts if is_global_sum(equation) else ())
    barred = {find(atom) for atom in results if _is_sum(types, atom)}
    at_origin: dict[Var, int] = {}
    at_use: dict[Var, int] = {}
    for total, members in ((at_origin, origins), (at_use, uses)):
        for var in dict.fromkeys(members):
            aval = type_of(var)
            total[find(var)] = total.get(find(var), 0) + math.prod(aval.shape) * aval.dtype.itemsize
    lifted = {root for root in at_use if root not in barred and at_origin[root] <= at_use[root]}
    chosen = frozenset(var for var in list(group) if find(var) in lifted)
    return chosen, frozenset(var for var in origins if var in chosen)
