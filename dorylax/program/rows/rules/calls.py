"""Rules for calls of functions given as jaxprs: the function is checked in place of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dorylax.jax_internals import ClosedJaxpr, Jaxpr
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import RowType

_BODIES = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "composite": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}

CALLS = frozenset([*_BODIES, "custom_linear_solve", "scan", "while", "cond", "optimization_barrier", "device_put"])
"""Primitives whose operands may be of different kinds, because each has a separate path through the call."""


def body(closed: Any) -> Jaxpr:
    """Return the jaxpr of a closed one; its constants count as values without rows."""
    jaxpr: Jaxpr = closed.jaxpr if isinstance(closed, ClosedJaxpr) else closed
    return jaxpr


@rule(*_BODIES)
def call(op: Operation) -> Sequence[RowType]:
    """Return the types of the function's outputs. Functions with custom derivatives are checked again in the gradient."""
    inside = "a function with a derivative of its own" if op.name.startswith("custom_") else None
    return op.infer(body(op.params[_BODIES[op.name]]), op.types, inside=inside)


@rule("custom_linear_solve")
def custom_linear_solve(op: Operation) -> Sequence[RowType]:
    """Return the types of its `solve`; operands are constants of four functions, then right-hand sides."""
    lengths = op.params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    constants = op.types[start : start + lengths.solve]
    sides = op.types[sum(lengths) :]
    return op.infer(body(op.params["jaxprs"].solve), [*constants, *sides])
