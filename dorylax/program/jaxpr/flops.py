"""Estimated arithmetic of equations and sizes of values, for numbers of rows that are given.

Counts are of operations on elements, whatever their dtype: they compare tasks with each other, and do not predict
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dorylax.jax_internals import Jaxpr, JaxprEqn, is_key, jaxprs_in_params, size_at

TRANSCENDENTAL = 10
"""Operations that one exp, log, tanh, square root, … counts as: about what a vectorised polynomial takes."""

THREEFRY = 115
"""Operations of one threefry-2x32 block: 20 rounds of add, rotate (2 shifts, or), xor; 5 key injections of 3 adds."""

SOFTMAX = 4 + TRANSCENDENTAL
"""Operations per score of `edge_softmax`: maximum, shift, exponential, sum, division."""

ATTENTION = SOFTMAX + 3
"""Operations per score of fused attention: sum of both ends and leaky ReLU, besides."""

_KEY_BYTES = 8  # a threefry key is two 32-bit words

_Sizes = Mapping[str, int]
_Rule = Callable[[JaxprEqn, _Sizes], int]


def elements(aval: Any, sizes: Mapping[str, int]) -> int:
    """The number of elements of a value.

    Args:
        aval: its abstract value, whose shape may hold symbols.
        sizes: the value of each symbol: `{"n": V, "e": E}`.
    """
    return math.prod(int(size_at(dim, sizes)) for dim in aval.shape)


def value_bytes(aval: Any, sizes: Mapping[str, int]) -> int:
    """Bytes of a value: elements × bytes of one; a random key counts as 8 bytes. Arguments as for `elements`."""
    return elements(aval, sizes) * item_bytes(aval)


def item_bytes(aval: Any) -> int:
    """Bytes of one element of a value."""
    return _KEY_BYTES if is_key(aval) else int(aval.dtype.itemsize)


def equation_flops(equation: JaxprEqn, sizes: Mapping[str, int]) -> int:
    """Estimated operations of one equation.

    - matrix products and convolutions: a multiplication and an addition per term, 2·M·N·K·batch;
    - elementwise arithmetic: 1 per element of the result, `TRANSCENDENTAL` for exp, log, tanh, … (square roots included);
    - reductions and cumulative sums: 1 per element that goes in; windowed ones 1 per element of each window;
    - sorting along an axis of length L: ⌈log₂ L⌉ per element; FFT 5·⌈log₂ L⌉;
    - decompositions and triangular solves: 2·m·n·min(m, n) per matrix;
    - random bits: `THREEFRY` per word;
    - layout, slicing, indexing, constants: 0; additions scattered to indices: 1 per addition;
    - scan: its body times its length; cond: its costliest branch; while: condition and body once, as if it stopped then;
    - graph operators: per entry and column 0 to copy, 1 to sum or compare, 2 to weight (select, multiply) and sum;
      `SOFTMAX` per score of edge_softmax; `ATTENTION` per score of fused attention, and 2 per column of each weighted sum;
      degrees 1 per row, self_loops 2 per entry.

    Args:
        equation: any; one of an unknown primitive counts as elementwise, or as what it calls.
        sizes: the value of each symbol in its shapes: `{"n": V, "e": E}`.
    """
    rule = _RULES.get(equation.primitive.name)
    if rule is not None:
        return rule(equation, sizes)
    inner = _inner_flops(equation, sizes)
    return sum(inner) if inner else _result(equation, sizes)


def _result(equation: JaxprEqn, sizes: _Sizes) -> int:
    return elements(equation.outvars[0].aval, sizes) if equation.outvars else 0


def _operand(equation: JaxprEqn, index: int, sizes: _Sizes) -> int:
    return elements(equation.invars[index].aval, sizes)


def _length(equation: JaxprEqn, axis: int, sizes: _Sizes) -> int:
    return int(size_at(_shape(equation, 0)[axis], sizes))


def _log2(length: int) -> int:
    return math.ceil(math.log2(length)) if length > 1 else 0


def _inner_flops(equation: JaxprEqn, sizes: _Sizes) -> list[int]:
    """The operations of each jaxpr in an equation's parameters."""
    return [_jaxpr_flops(jaxpr, sizes) for jaxpr in jaxprs_in_params(equation.params)]


def _jaxpr_flops(jaxpr: Jaxpr, sizes: _Sizes) -> int:
    return sum(equation_flops(equation, sizes) for equation in jaxpr.eqns)


def _dot(equation: JaxprEqn, sizes: _Sizes) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    return 2 * _result(equation, sizes) * math.prod(_length(equation, axis, sizes) for axis in contracted)


def _convolution(equation: JaxprEqn, sizes: _Sizes) -> int:
    features = int(size_at(_shape(equation, 1)[equation.params["dimension_numbers"].rhs_spec[0]], sizes))
    return 2 * _result(equation, sizes) * (_operand(equation, 1, sizes) // max(features, 1))


def _sort(equation: JaxprEqn, sizes: _Sizes) -> int:
    axis = equation.params.get("dimension", equation.params.get("axis", -1))
    return _operand(equation, 0, sizes) * _log2(_length(equation, axis, sizes))


def _fft(equation: JaxprEqn, sizes: _Sizes) -> int:
    points = math.prod(int(size_at(size, sizes)) for size in equation.params["fft_lengths"])
    return 5 * max(_operand(equation, 0, sizes), _result(equation, sizes)) * _log2(points)


def _cubic(equation: JaxprEqn, sizes: _Sizes) -> int:
    last: list[int] = [int(size_at(dim, sizes)) for dim in _shape(equation, 0)[-2:]]
    return 2 * max(_operand(equation, 0, sizes), _result(equation, sizes)) * min(last)


def _windows(equation: JaxprEqn, sizes: _Sizes) -> int:
    return _result(equation, sizes) * math.prod(
        int(size_at(dim, sizes)) for dim in equation.params["window_dimensions"]
    )


def _scan(equation: JaxprEqn, sizes: _Sizes) -> int:
    return int(size_at(equation.params["length"], sizes)) * sum(_inner_flops(equation, sizes))


def _branches(equation: JaxprEqn, sizes: _Sizes) -> int:
    return max(_inner_flops(equation, sizes), default=0)


def _softmax(equation: JaxprEqn, sizes: _Sizes) -> int:
    return SOFTMAX * (_operand(equation, 0, sizes) + _operand(equation, 1, sizes))


def _attention(sums: int) -> _Rule:
    """Of fused attention that makes so many weighted sums of a neighbour's row; its second operand has a score per head."""

    def rule(equation: JaxprEqn, sizes: _Sizes) -> int:
        scores, columns = row_width(equation, sizes, 1), row_width(equation, sizes)
        return num_entries(equation, sizes) * (ATTENTION * scores + 2 * sums * columns)

    return rule


def num_entries(equation: JaxprEqn, sizes: Mapping[str, int]) -> int:
    """E, of the graph that a graph operator runs over."""
    # The five arrays of the structure come last, in_neighbours second among them.
    return _operand(equation, len(equation.invars) - 4, sizes)


def row_width(equation: JaxprEqn, sizes: Mapping[str, int], index: int = 0) -> int:
    """Elements of one row of a graph operator's operand: heads × columns."""
    return math.prod(int(size_at(dim, sizes)) for dim in _shape(equation, index)[1:])


def _shape(equation: JaxprEqn, index: int) -> tuple[Any, ...]:
    aval: Any = equation.invars[index].aval
    return tuple(aval.shape)


def _per_result(each: int) -> _Rule:
    return lambda equation, sizes: each * _result(equation, sizes)


def _per_operand(index: int) -> _Rule:
    return lambda equation, sizes: _operand(equation, index, sizes)


def _per_entry(each: int) -> _Rule:
    return lambda equation, sizes: each * num_entries(equation, sizes) * row_width(equation, sizes)


_TABLE: list[tuple[_Rule, str]] = [
    (
        _per_result(0),
        """
        bitcast_convert_type broadcast_in_dim concatenate copy dim_as_value dynamic_slice dynamic_update_slice empty empty2
        expand_dims gather global_sum imag iota name optimization_barrier pad random_clone random_unwrap random_wrap real
        reshape rev scatter sharding_constraint slice split squeeze stack stop_gradient tile transpose unstack zeros_like
        """,
    ),
    (
        _per_result(TRANSCENDENTAL),
        """
        acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1
        igamma igamma_grad_a igammac lgamma log log1p logistic polygamma pow random_gamma regularized_incomplete_beta rsqrt
        sin sinh sqrt tan tanh zeta
        """,
    ),
    (
        _per_operand(0),
        """
        argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce reduce_and reduce_max reduce_min reduce_or
        reduce_prod reduce_sum reduce_xor select_and_scatter_add
        """,
    ),
    (_per_operand(2), "scatter-add scatter-max scatter-min scatter-mul scatter-sub"),
    (_windows, "reduce_window reduce_window_max reduce_window_min reduce_window_sum"),
    (_per_result(THREEFRY), "random_bits random_fold_in random_seed random_split threefry2x32"),
    (
        _cubic,
        """
        cholesky cholesky_update eig eigh geqp3 geqrf hessenberg householder_product lu ormqr qr schur svd triangular_solve
        tridiagonal
        """,
    ),
    (_dot, "dot_general"),
    (_convolution, "conv_general_dilated"),
    (_sort, "sort top_k approx_top_k"),
    (_fft, "fft"),
    (_scan, "scan"),
    (_branches, "cond"),
    (_per_entry(0), "dorylax_expand"),
    (_per_entry(1), "dorylax_collect dorylax_collect_extremum dorylax_gather_extremum dorylax_gather_sum"),
    (_per_entry(2), "dorylax_edge_dot dorylax_gather_weighted dorylax_select_sum"),
    (_softmax, "dorylax_edge_softmax"),
    (_attention(1), "dorylax_attention"),
    (_attention(2), "dorylax_attention_saving dorylax_attention_backward"),
    (_attention(3), "dorylax_attention_tangent"),
    (_per_result(1), "dorylax_degrees"),
    (lambda equation, sizes: 2 * num_entries(equation, sizes), "dorylax_self_loops"),
]
_RULES = {name: rule for rule, names in _TABLE for name in names.split()}
