"""Stores a value once that a graph operator reads in one shape and stages read in another.

Graph operators take rows as `[n, H, F]`; models mostly hold `[n, F]`. The stage that makes them would write and ship both.
Here the other readers also read the operator's operand, and undo the change of shape, which is free.
"""

from __future__ import annotations

from collections import defaultdict

from dorylax.jax_internals import ClosedJaxpr, JaxprEqn, Var, close, fresh_var, is_literal, replace_equation
from dorylax.program.jaxpr.graph_operators import is_graph_operator


def share_reshapes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Derive each value that is reshaped for a graph operator from the reshaped value."""
    jaxpr = closed.jaxpr
    makers = {var: equation for equation in jaxpr.eqns for var in equation.outvars}
    operands = (atom for equation in jaxpr.eqns if is_graph_operator(equation) for atom in equation.invars)
    reshapes: dict[Var, JaxprEqn] = {}  # by the original value
    for atom in operands:
        maker = None if is_literal(atom) else makers.get(atom)
        if maker is None or maker.primitive.name != "reshape":
            continue
        source = makers.get(maker.invars[0])
        # Not for consecutive reshapes, one of which would move before the value it reads.
        if source is not None and source.primitive.name != "reshape":
            reshapes.setdefault(maker.invars[0], maker)
    readers: dict[Var, int] = defaultdict(int)
    for atom in [*(atom for equation in jaxpr.eqns for atom in equation.invars), *jaxpr.outvars]:
        if not is_literal(atom):
            readers[atom] += 1
    shared = {var: reshape for var, reshape in reshapes.items() if readers[var] > 1}
    moved = {id(reshape) for reshape in shared.values()}
    equations: list[JaxprEqn] = []
    for equation in jaxpr.eqns:
        if id(equation) in moved:
            continue
        own = [var for var in equation.outvars if var in shared]
        inner = {var: fresh_var(var.aval) for var in own}
        results = [inner.get(var, var) for var in equation.outvars]
        equations.append(replace_equation(equation, equation.invars, results) if own else equation)
        for var in own:
            there = shared[var]
            equations.append(replace_equation(there, [inner[var]], there.outvars))
            back = {**there.params, "new_sizes": tuple(var.aval.shape)}
            equations.append(replace_equation(there, there.outvars, [var], back))
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    return close(jaxpr.invars, jaxpr.outvars, equations, consts)
