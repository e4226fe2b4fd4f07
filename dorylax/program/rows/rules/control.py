"""Rules for loops and branches: the check covers bodies as it does any jaxpr; types of carries are found by iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.rules.calls import body
from dorylax.program.rows.types import Free, GraphArray, Rows, RowType, Summed


@rule("scan")
def scan(op: Operation) -> Sequence[RowType]:
    """Refuse scans over the axis of rows; a carry that begins at zero may add up sums over rows."""
    params = op.params
    scanned = op.counts(params["length"])
    if scanned is not None:
        op.refuse(f"scan over the {scanned.space} axis", advice.loops(scanned.space))
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    slices = [_slice(kind) for kind in op.types[last:]]

    def step(carry: Sequence[RowType]) -> list[RowType]:
        return op.infer(body(params["jaxpr"]), [*op.types[:first], *carry, *slices], inside="scan")

    carry, results = _fixpoint(op, op.types[first:last], step)
    return [*carry, *(_stacked(kind) for kind in results[len(carry) :])]


def _slice(kind: RowType) -> RowType:
    """Return the type of a scanned value within a step, without axis 0, whose size is a number here."""
    return Rows(kind.space, kind.axis - 1, kind.factor) if isinstance(kind, Rows) else kind


def _stacked(kind: RowType) -> RowType:
    return Rows(kind.space, kind.axis + 1, kind.factor) if isinstance(kind, Rows) else kind


@rule("while")
def while_loop(op: Operation) -> Sequence[RowType]:
    """Accept conditions without rows, or with rows, as for a loop under `vmap` in which each row stops separately."""
    params = op.params
    for_cond, for_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = op.types[:for_cond], op.types[for_cond : for_cond + for_body]

    def step(carry: Sequence[RowType]) -> list[RowType]:
        return op.infer(body(params["body_jaxpr"]), [*body_consts, *carry], inside="while_loop")

    carry, _ = _fixpoint(op, op.types[for_cond + for_body :], step)
    (condition,) = op.infer(body(params["cond_jaxpr"]), [*cond_consts, *carry], inside="while_loop")
    if not isinstance(condition, Free) and any(kind != condition for kind in carry):
        op.unsupported("a loop whose condition has rows, which not all carried values have on the same axis")
    return carry


@rule("cond")
def cond(op: Operation) -> Sequence[RowType]:
    """Require that all rows take the same branch."""
    op.require_free([0], "branches")
    results = [op.infer(body(branch), op.types[1:], inside="cond") for branch in op.params["branches"]]
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
