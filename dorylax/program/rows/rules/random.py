"""Rules for random numbers: keys without rows give values without rows, keys per row give rows."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, RowType


@rule("random_bits", "random_split")
def from_keys(op: Operation) -> Sequence[RowType]:
    """Follow numbers (or keys) of a shape, drawn for each key: axes of keys come first."""
    if op.sums:
        op.refuse_sum()
    if any(op.counts(size) is not None for size in op.params["shape"]):
        op.unsupported(f"draws numbers for all {advice.many(_space(op))} from one key", advice.RANDOM)
    return op.follow(lambda rows: rows.axis, linear=False)


@rule("random_seed", "random_wrap", "random_unwrap")
def seeds_and_words(op: Operation) -> Sequence[RowType]:
    """Follow a key for each integer, and keys and their words, which are last axes of fixed sizes."""
    return op.follow(lambda rows: rows.axis, linear=False)


@rule("random_gamma", "rng_bit_generator")
def by_place(op: Operation) -> Sequence[RowType]:
    """Refuse rows, since the numbers depend on the position of an element."""
    if op.sums or op.rows or any(op.result_rows(k) is not None for k in range(len(op.result_shapes))):
        op.unsupported("draws numbers by their place in memory", advice.RANDOM)
    return [Free()] * len(op.result_shapes)


@rule("rng_uniform")
def without_key(op: Operation) -> Sequence[RowType]:
    """Refuse, since each call draws other numbers, while values without rows are recomputed where they are needed."""
    op.unsupported("draws numbers that no key determines", advice.RANDOM)


def _space(op: Operation) -> Space:
    rows = op.result_rows()
    return "vertex" if rows is None else rows.space
