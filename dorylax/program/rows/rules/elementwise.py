"""Rules for elementwise operations, including those that are linear, and for random numbers.

Keys without rows give values without rows, keys per row give rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows import advice
from dorylax.program.rows.rules.base import Operation, rule
from dorylax.program.rows.types import Free, RowType

_ARITHMETIC = """
abs acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp complex conj
convert_element_type copy cos cosh digamma div erf erf_inv erfc exp exp2 expm1 floor igamma igamma_grad_a igammac imag
integer_pow is_finite lgamma log log1p logistic max min mul mulhi name neg nextafter polygamma pow real reduce_precision
regularized_incomplete_beta rem round rsqrt sign sin sinh sqrt square stop_gradient sub tan tanh zeta
"""
_LOGIC = """
and clz eq eq_to ge gt le le_to lt lt_to ne not or population_count shift_left shift_right_arithmetic
shift_right_logical xor
"""
_OTHER = "random_clone random_fold_in select_n threefry2x32"

NAMES = frozenset(f"{_ARITHMETIC} {_LOGIC} {_OTHER}".split())
"""Primitives with the rule `elementwise`."""

_SUMS = frozenset(["add", "sub", "add_any"])
_LINEAR = frozenset(["neg", "copy", "name", "real", "imag", "conj", "reduce_precision", "stop_gradient"])


@rule(*sorted(NAMES))
def elementwise(op: Operation) -> Sequence[RowType]:
    """Require that element i of the result depends on element i of each operand, on scalars, and on axes of size 1."""
    if op.sums:
        return op.all_results(_linear(op))
    result = op.result_rows()
    if result is None:
        return op.all_results(Free())
    for k, rows in op.rows:
        if len(op.shapes[k]) != len(op.result_shapes[0]) or rows != result:
            op.unsupported(f"operand {k} of {op.name} has its rows elsewhere than the result")
    if any(op.shapes[k] and len(op.shapes[k]) != len(op.result_shapes[0]) for k in range(len(op.types))):
        op.unsupported(f"operands of {op.name} have different numbers of axes")
    return op.all_results(result)


@rule("bitcast_convert_type", "random_seed", "random_wrap", "random_unwrap")
def with_last_axes(op: Operation) -> Sequence[RowType]:
    """Follow bits of an element, a key for each integer, and words of keys, which may be last axes of fixed sizes."""
    return op.follow(linear=False)


@rule("random_bits", "random_split")
def from_keys(op: Operation) -> Sequence[RowType]:
    """Follow numbers (or keys) of a shape, drawn for each key: axes of keys come first."""
    if any(op.counts(size) is not None for size in op.params["shape"]):
        rows = op.result_rows()
        space: Space = "vertex" if rows is None else rows.space
        op.unsupported(f"draws numbers for all {advice.many(space)} from one key", advice.RANDOM)
    return op.follow(linear=False)


@rule("random_gamma", "rng_bit_generator")
def by_place(op: Operation) -> Sequence[RowType]:
    """Refuse rows, since the numbers depend on the position of an element."""
    if op.sums or op.rows or any(op.result_rows(k) is not None for k in range(len(op.result_shapes))):
        op.unsupported("draws numbers by their place in memory", advice.RANDOM)
    return op.all_results(Free())


@rule("rng_uniform")
def without_key(op: Operation) -> Sequence[RowType]:
    """Refuse, since each call draws other numbers, while values without rows are recomputed where they are needed."""
    op.unsupported("draws numbers that no key determines", advice.RANDOM)


def _linear(op: Operation) -> RowType:
    """Return the type of a sum over rows after an elementwise operation; only linear operations are allowed."""
    if op.rows:
        op.refuse_sum()
    if op.name in _SUMS or op.name == "complex":
        return op.add_up(range(len(op.types)))
    if op.name == "select_n":
        op.require_free([0], "a choice")
        return op.add_up(range(1, len(op.types)))
    linear = op.name in _LINEAR or (op.name == "mul" and len(op.sums) == 1)
    linear |= op.name == "integer_pow" and op.params["y"] == 1
    linear |= op.name == "convert_element_type" and _keeps_sums(op)
    # Division of integers rounds each part separately.
    inexact = jnp.issubdtype(op.result_dtype, jnp.inexact)
    if op.name == "div" and inexact and isinstance(op.types[1], Free):
        linear = True
    if not linear:
        op.refuse_sum()
    return op.sums[0]


def _keeps_sums(op: Operation) -> bool:
    """Whether the sum of converted parts is the converted sum, except for rounding."""
    old, new = op.dtype(0), op.result_dtype
    if jnp.issubdtype(new, jnp.inexact):
        return True  # the real part of a sum is the sum of real parts
    # Integers wrap around in the same way in a narrower type; in a wider one, wrapped parts would differ from the sum.
    return bool(jnp.issubdtype(old, jnp.integer) and jnp.issubdtype(new, jnp.integer) and new.itemsize <= old.itemsize)
