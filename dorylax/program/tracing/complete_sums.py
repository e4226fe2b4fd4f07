"""Completes sums over all rows within a model, such as those of BatchNorm, where they must be whole.

A sum over vertices or edges is computed in parts, one for each interval (`rows.types.Summed`), and parts can only go through
linear arithmetic. Any other reader of such a sum needs all of it. `complete_sums` finds these readers, in the forward pass
and in the gradient alike, and inserts `global_sum`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, equation_like, fresh_var, is_literal, type_of, variables
from dorylax.program.jaxpr.graph_operators import GLOBAL_SUM, is_global_sum
from dorylax.program.jaxpr.rewrite import Builder, reached
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
    # In a product of two sums, a value that depends on the cotangent of the loss may stay in parts.
    scales = [var for var, entry in zip(closed.jaxpr.invars, inputs, strict=True) if entry.role == "loss_scale"]
    wholes = Wholes(reached(closed.jaxpr.eqns, scales))
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


def _is_sum(types: Mapping[Var, RowType], atom: Any) -> bool:
    return not is_literal(atom) and isinstance(types[atom], Summed)


def _is_term(types: Mapping[Var, RowType], atom: Any) -> bool:
    """Whether an atom is a term that would be added once for each interval."""
    return not is_literal(atom) and isinstance(kind := types[atom], Free) and not kind.zero


def _completed_at_uses(closed: ClosedJaxpr, wholes: Wholes, ends: Sequence[int]) -> ClosedJaxpr:
    """Insert a complete sum for each operand that must be whole, and for these outputs."""
    builder = Builder(closed)
    made: dict[Var, Var] = {}

    def complete(part: Var, like: JaxprEqn) -> Var:
        if part not in made:
            made[part] = _add_global_sum(builder, part, like)
            if part not in wholes.parts:
                builder.replace(part, made[part])
        return made[part]

    for place, equation in enumerate(closed.jaxpr.eqns):
        operands = {k: complete(equation.invars[k], equation) for k in wholes.operands.get(place, ())}
        builder.keep(equation, operands)
    outputs = [builder.read(atom) for atom in closed.jaxpr.outvars]
    for k in ends:
        outputs[k] = complete(closed.jaxpr.outvars[k], closed.jaxpr.eqns[-1])
    return builder.finish(outputs)


def _add_global_sum(builder: Builder, part: Var, like: JaxprEqn) -> Var:
    total = fresh_var(part.aval)
    builder.equations.append(equation_like(like, GLOBAL_SUM, [part], [total]))
    return total


def _completed_at_origins(closed: ClosedJaxpr, types: Mapping[Var, RowType], results: Iterable[Any]) -> ClosedJaxpr:
    """Complete sums where rows are added up, so that later equations compute with whole sums.

    Skipped if a part of the sum is itself a result, as a parameter's gradient is, or if more bytes would travel.
    """
    chosen, early = _lifted(closed, types, results)
    builder = Builder(closed)
    for equation in closed.jaxpr.eqns:
        if is_global_sum(equation) and equation.invars[0] in chosen:
            builder.replace(equation.outvars[0], builder.read(equation.invars[0]))
            continue
        builder.keep(equation)
        for var in equation.outvars:
            if var in early:
                builder.replace(var, _add_global_sum(builder, var, equation))
    return builder.finish()


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
