"""Estimates the arithmetic of equations, for given numbers of rows.

The counts are operations on elements of any dtype. They serve to compare tasks, not to predict seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dorylax.jax_internals import JaxprEqn, jaxprs_in_params, size_at, type_of
from dorylax.ops.primitives.operator import TRANSCENDENTAL
from dorylax.program.jaxpr.graph_operators import is_graph_operator, operator_flops
from dorylax.program.jaxpr.symbols import elements

THREEFRY = 115
"""Operations of one threefry-2x32 block: 20 rounds of add, rotate (2 shifts, or), xor; 5 key injections of 3 adds."""

_Sizes = Mapping[str, int]
_Rule = Callable[[JaxprEqn, _Sizes], int]


def equation_flops(equation: JaxprEqn, sizes: Mapping[str, int]) -> int:
    """Estimate the operations of one equation.

    - matrix products and convolutions: a multiplication and an addition per term, 2·M·N·K·batch;
    - elementwise arithmetic: 1 per element of the result, `TRANSCENDENTAL` for exp, log, tanh, … (square roots included);
    - reductions and cumulative sums: 1 per input element; windowed ones 1 per element of each window;
    - sorting along an axis of length L: ⌈log₂ L⌉ per element; FFT 5·⌈log₂ L⌉;
    - decompositions and triangular solves: 2·m·n·min(m, n) per matrix;
    - random bits: `THREEFRY` per word;
    - layout, slicing, indexing, constants: 0; additions scattered to indices: 1 per addition;
    - scan: its body times its length; cond: its costliest branch; while: condition and body once, as for one iteration;
    - graph operators: `Operator.flops`.

    Args:
        equation: Any equation; an unknown primitive counts as the functions in its parameters, or else as elementwise.
        sizes: Value of each symbol in its shapes: `{"n": V, "e": E}`.
    """
    if is_graph_operator(equation):
        return operator_flops(equation, sizes)
    rule = _RULES.get(equation.primitive.name)
    if rule is not None:
        return rule(equation, sizes)
    inner = _inner_flops(equation, sizes)
    return sum(inner) if inner else _result(equation, sizes)


def product_flops(equation: JaxprEqn, sizes: Mapping[str, int]) -> int:
    """Estimate only the operations of matrix products and convolutions; loops count once."""
    if equation.primitive.name in ("dot_general", "conv_general_dilated"):
        return equation_flops(equation, sizes)
    inner = jaxprs_in_params(equation.params)
    return sum(product_flops(one, sizes) for jaxpr in inner for one in jaxpr.eqns)


def may_go_on(equation: JaxprEqn) -> bool:
    """Whether an equation contains a loop with a dynamic end, so that its number of operations is unknown."""
    if equation.primitive.name == "while":
        return True
    return any(may_go_on(one) for jaxpr in jaxprs_in_params(equation.params) for one in jaxpr.eqns)


def _result(equation: JaxprEqn, sizes: _Sizes) -> int:
    return elements(equation.outvars[0].aval, sizes) if equation.outvars else 0


def _operand(equation: JaxprEqn, index: int, sizes: _Sizes) -> int:
    return elements(equation.invars[index].aval, sizes)


def _length(equation: JaxprEqn, axis: int, sizes: _Sizes) -> int:
    return int(size_at(type_of(equation.invars[0]).shape[axis], sizes))


def _log2(length: int) -> int:
    return math.ceil(math.log2(length)) if length > 1 else 0


def _inner_flops(equation: JaxprEqn, sizes: _Sizes) -> list[int]:
    """Return the operations of each jaxpr in an equation's parameters."""
    return [sum(equation_flops(one, sizes) for one in jaxpr.eqns) for jaxpr in jaxprs_in_params(equation.params)]


def _dot(equation: JaxprEqn, sizes: _Sizes) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    return 2 * _result(equation, sizes) * math.prod(_length(equation, axis, sizes) for axis in contracted)


def _convolution(equation: JaxprEqn, sizes: _Sizes) -> int:
    features = int(size_at(type_of(equation.invars[1]).shape[equation.params["dimension_numbers"].rhs_spec[0]], sizes))
    return 2 * _result(equation, sizes) * (_operand(equation, 1, sizes) // max(features, 1))


def _sort(equation: JaxprEqn, sizes: _Sizes) -> int:
    axis = equation.params.get("dimension", equation.params.get("axis", -1))
    return _operand(equation, 0, sizes) * _log2(_length(equation, axis, sizes))


def _fft(equation: JaxprEqn, sizes: _Sizes) -> int:
    points = math.prod(int(size_at(size, sizes)) for size in equation.params["fft_lengths"])
    return 5 * max(_operand(equation, 0, sizes), _result(equation, sizes)) * _log2(points)


def _cubic(equation: JaxprEqn, sizes: _Sizes) -> int:
    last: list[int] = [int(size_at(dim, sizes)) for dim in type_of(equation.invars[0]).shape[-2:]]
    return 2 * max(_operand(equation, 0, sizes), _result(equation, sizes)) * min(last)


def _windows(equation: JaxprEqn, sizes: _Sizes) -> int:
    return _result(equation, sizes) * math.prod(
        int(size_at(dim, sizes)) for dim in equation.params["window_dimensions"]
    )


def _scan(equation: JaxprEqn, sizes: _Sizes) -> int:
    return int(size_at(equation.params["length"], sizes)) * sum(_inner_flops(equation, sizes))


def _branches(equation: JaxprEqn, sizes: _Sizes) -> int:
    return max(_inner_flops(equation, sizes), default=0)


def _per_result(each: int) -> _Rule:
    return lambda equation, sizes: each * _result(equation, sizes)


def _per_operand(index: int) -> _Rule:
    return lambda equation, sizes: _operand(equation, index, sizes)


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
]
_RULES = {name: rule for rule, names in _TABLE for name in names.split()}
