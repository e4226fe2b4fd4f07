"""Rules for calls, loops and branches: the check covers bodies as it does any jaxpr.

A function is checked in place of its call; types of carries are found by iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dorylax.jax_internals import ClosedJaxpr, Jaxpr
from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed

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


def _body(closed: Any) -> Jaxpr:
    """Return the jaxpr of a closed one; its constants count as values without rows."""
    jaxpr: Jaxpr = closed.jaxpr if isinstance(closed, ClosedJaxpr) else closed
    return jaxpr


@rule(*_BODIES)
def call(op: Operation) -> Sequence[RowType]:
    """Return the types of the function's outputs. Functions with custom derivatives are checked again in the gradient."""
    inside = "a function with a derivative of its own" if op.name.startswith("custom_") else None
    return op.infer(_body(op.params[_BODIES[op.name]]), op.types, inside=inside)


@rule("custom_linear_solve")
def custom_linear_solve(op: Operation) -> Sequence[RowType]:
    """Return the types of its `solve`; operands are constants of four functions, then right-hand sides."""
    lengths = op.params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    constants = op.types[start : start + lengths.solve]
    sides = op.types[sum(lengths) :]
    return op.infer(_body(op.params["jaxprs"].solve), [*constants, *sides])


@rule("scan")
def scan(op: Operation) -> Sequence[RowType]:
    """Refuse scans over the axis of rows; a carry that begins at zero may add up sums over rows."""
    params = op.params
    scanned = op.counts(params["length"])
    if scanned is not None:
        op.refuse(f"scan over the {scanned.space} axis", advice.loops(scanned.space))
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    # Scanned values lose axis 0 in a step, and results gain it; its size is a number here.
    slices = [_moved(kind, -1) for kind in op.types[last:]]

    def step(carry: Sequence[RowType]) -> list[RowType]:
        return op.infer(_body(params["jaxpr"]), [*op.types[:first], *carry, *slices], inside="scan")

    carry, results = _fixpoint(op, op.types[first:last], step)
    return [*carry, *(_moved(kind, 1) for kind in results[len(carry) :])]


def _moved(kind: RowType, by: int) -> RowType:
    return Rows(kind.space, kind.axis + by, kind.factor) if isinstance(kind, Rows) else kind


@rule("while")
def while_loop(op: Operation) -> Sequence[RowType]:
    """Accept conditions without rows, or with rows, as for a loop under `vmap` in which each row stops separately."""
    params = op.params
    for_cond, for_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = op.types[:for_cond], op.types[for_cond : for_cond + for_body]

    def step(carry: Sequence[RowType]) -> list[RowType]:
        return op.infer(_body(params["body_jaxpr"]), [*body_consts, *carry], inside="while_loop")

    carry, _ = _fixpoint(op, op.types[for_cond + for_body :], step)
    (condition,) = op.infer(_body(params["cond_jaxpr"]), [*cond_consts, *carry], inside="while_loop")
    if not isinstance(condition, Free) and any(kind != condition for kind in carry):
        op.unsupported("a loop whose condition has rows, which not all carried values have on the same axis")
    return carry


@rule("cond")
def cond(op: Operation) -> Sequence[RowType]:
    """Require that all rows take the same branch."""
    op.require_free([0], "branches")
    results = [op.infer(_body(branch), op.types[1:], inside="cond") for branch in op.params["branches"]]
    joined = results[0]
    for other in results[1:]:
        joined = [_join(op, a, b) for a, b in zip(joined, other, strict=True)]
    return joined


def _fixpoint(
    op: Operation, start: Sequence[RowType], step: Callable[[Sequence[RowType]], list[RowType]]
) -> tuple[list[RowType], list[RowType]]:
    """Return types of a carry that hold before and after each step, and the step's results for them.

    A type can only change from a known zero to another value without rows or to a sum, so few rounds suffice.
    """
    carry = list(start)
    while True:
        results = step(carry)
        joined = [_join(op, before, after) for before, after in zip(carry, results[: len(carry)], strict=True)]
        if all(_same(before, after) for before, after in zip(carry, joined, strict=True)):
            return carry, results
        carry = joined


def _same(a: RowType, b: RowType) -> bool:
    return a == b and (not isinstance(a, Free) or not isinstance(b, Free) or a.zero == b.zero)


def _join(op: Operation, a: RowType, b: RowType) -> RowType:
    """Return a type that holds for a value of either type."""
    if isinstance(a, Free) and isinstance(b, Free):
        return Free(a.zero and b.zero)
    if a == b and not isinstance(a, GraphArray):
        return a
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Summed) and isinstance(other, Free):
            if other.zero:
                return one
            total = Operation(op.equation, [one, other], op.scope)
            total.refuse_sum(
                f"It is carried (or returned by a branch) together with a term without rows. {advice.TERMS}"
            )
    op.unsupported("a value that has rows only in some steps or branches")
