"""Additive attention in one operator: scores, softmax and weighted sum, without an array over the edges in any pass.

There are four primitives. Users call `attention`. `attention_saving` also returns the inputs of its derivatives
(kernel/attention.inl has the equations): `tilt`, the derivative of y with respect to the target scores, and per vertex and
head `shift` and `scale`, so that a weight is exp(leaky(s_u + t_v) - shift_v) · scale_v. `attention_tangent` is linear in the
tangents, and `attention_backward` is its transpose.

`written_out` defines them in terms of other operators, with derivatives by JAX. It is their lowering without a kernel, their
second derivative, and their form in programs to be split (`program.tracing.flatten`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.ops.primitives.linear import expand, gather_weighted
from dorylax.ops.primitives.operator import CallSizes, OperandSpec, Operator, ResultSpec
from dorylax.ops.primitives.softmax import SOFTMAX, edge_softmax
from dorylax.ops.primitives.structure import Structure

# Operands of all four: the summands z [V, H, F], the scores s [V, H] of sources and t [V, H] of targets, and loops [V],
# above 0 if the implicit loop of a vertex takes part. The derivatives also take the results y, tilt, shift and scale of
# `attention_saving`.


def written_out(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> Any:
    """Compute y `[V, H, F]` with other operators."""
    wide = accumulator(s.dtype)  # the sum of a large softmax would overflow float16 and lose digits in bfloat16
    scores = _leaky(
        _spread(s, structure, "out").astype(wide) + _spread(t, structure, "in").astype(wide), negative_slope
    )
    loop_scores = _leaky(s.astype(wide) + t.astype(wide), negative_slope)
    alpha, loop_alpha = (
        weights.astype(z.dtype)
        for weights in edge_softmax(scores, jnp.where(loops[:, None] > 0, loop_scores, -jnp.inf), structure)
    )
    return gather_weighted(z, alpha, structure, direction="in") + loop_alpha[:, :, None] * z


def _spread(x: Any, structure: Structure, direction: str) -> Any:
    return expand(x.reshape(x.shape[0], 1, x.shape[1]), structure, direction=direction).reshape(-1, x.shape[1])


def _leaky(x: Any, slope: float) -> Any:
    y = jax.nn.leaky_relu(x, slope)
    # A masked edge stays masked: 0 · -inf would be NaN, and a negative slope would make it +inf.
    return y if slope > 0 else jnp.where(x == -jnp.inf, x, y)


def _forward(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> tuple[Any, ...]:
    return (written_out(z, s, t, loops, structure, negative_slope=negative_slope),)


def _served(*operands: Any) -> tuple[Any, ...]:
    """Return the operands z, s, t and loops, of one dtype if the kernel is to run; none for arrays without elements."""
    return operands[:4] if operands[0].size > 0 else ()


def _call(name: str, results: Sequence[Any], *arrays: Any, negative_slope: float) -> tuple[Any, ...]:
    call = jax.ffi.ffi_call(f"dorylax_ffi_{name}", [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results])
    return tuple(call(*arrays, slope=np.float64(negative_slope)))


def _forward_native(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    *dense, s = operands
    return _call("attention", dense[:1], *dense, s.in_offsets, s.in_neighbours, negative_slope=negative_slope)


def accumulator(dtype: Any) -> Any:
    """Return the dtype for accumulating sums of this dtype: float32 at least."""
    return jnp.promote_types(dtype, jnp.float32)


def _saving(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> tuple[Any, ...]:
    y = written_out(z, s, t, loops, structure, negative_slope=negative_slope)
    # Only the kernel's derivative reads these, and it computes them itself.
    numbers = jnp.zeros(s.shape, accumulator(s.dtype))
    return y, jnp.zeros_like(z), numbers, numbers


def _saving_native(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    z, scores, *_, s = operands
    per_head = jax.ShapeDtypeStruct(scores.shape, accumulator(scores.dtype))
    arrays = (*operands[:-1], s.in_offsets, s.in_neighbours)
    return _call("attention_saving", (z, z, per_head, per_head), *arrays, negative_slope=negative_slope)


def _tangent(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    """`(dz, ds, dt, z, s, t, loops, *saved, structure) -> dy`."""
    dz, ds, dt, z, s, t, loops, *_, structure = operands

    def y_of(z: Any, s: Any, t: Any) -> Any:
        return written_out(z, s, t, loops, structure, negative_slope=negative_slope)

    return (jax.jvp(y_of, (z, s, t), (dz, ds, dt))[1],)


def _backward(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    """`(z, s, t, loops, *saved, ct, structure) -> cotangents of (z, s, t)`."""
    z, s, t, loops, *_, ct, structure = operands

    def y_of(z: Any, s: Any, t: Any) -> Any:
        return written_out(z, s, t, loops, structure, negative_slope=negative_slope)

    cotangents: tuple[Any, ...] = jax.vjp(y_of, z, s, t)[1](ct)
    return cotangents


def _backward_native(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    *dense, s = operands
    arrays = (*dense, s.out_offsets, s.out_neighbours)
    return _call("attention_backward", dense[:3], *arrays, negative_slope=negative_slope)


ATTENTION = SOFTMAX + 3
"""Operations per score: the softmax, the sum of the two ends' scores, and the leaky ReLU."""


def _flops(sums: int) -> Callable[[CallSizes], int]:
    """Return an operator's `flops` for weighted sums of neighbours' rows; the second operand has a score per head."""
    return lambda sizes: sizes.entries * (ATTENTION * sizes.widths[1] + 2 * sums * sizes.widths[0])


_NUMBERS = ResultSpec(like=1, axes=2, dtype=lambda dtypes: accumulator(dtypes[1]))
_OWN, _OWN_SCORE, _OWN_LOOPS = OperandSpec("own"), OperandSpec("own", axes=2), OperandSpec("own", axes=1)
_ROWS, _SCORES = OperandSpec("neighbour"), OperandSpec("neighbour", axes=2)

_fused = functools.partial(Operator, label="GA", several=True, fused=True, served=_served)

attention = _fused(
    "attention",
    [_ROWS, _SCORES, _OWN_SCORE, _OWN_LOOPS],
    [ResultSpec()],
    flops=_flops(1),
    lower=_forward,
    native=_forward_native,
)
attention_saving = _fused(
    "attention_saving",
    [_ROWS, _SCORES, _OWN_SCORE, _OWN_LOOPS],
    [ResultSpec(), ResultSpec(), _NUMBERS, _NUMBERS],
    flops=_flops(2),
    lower=_saving,
    native=_saving_native,
)
attention_tangent = _fused(
    "attention_tangent",
    [_ROWS, _SCORES, _OWN_SCORE, _ROWS, _SCORES, _OWN_SCORE, _OWN_LOOPS, _OWN, _OWN, _OWN_SCORE, _OWN_SCORE],
    [ResultSpec()],
    flops=_flops(3),
    lower=_tangent,
)
attention_backward = _fused(
    "attention_backward",
    # Over out-edges, it reads the targets' scores, shifts, scales and cotangents.
    [_OWN, _OWN_SCORE, _SCORES, _OWN_LOOPS, _OWN, _OWN, _SCORES, _SCORES, _ROWS],
    [ResultSpec(), ResultSpec(like=1, axes=2), ResultSpec(like=2, axes=2)],
    flops=_flops(2),
    lower=_backward,
    native=_backward_native,
)


def _saving_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, negative_slope: float) -> Any:
    saved = attention_saving(*dense, structure, negative_slope=negative_slope)
    (dy,) = attention_tangent(*tangents[:3], *dense, *saved, structure, negative_slope=negative_slope)
    # Saved values only serve derivatives, which are differentiated with respect to z, s and t.
    return saved, (dy, *map(jnp.zeros_like, saved[1:]))


def _jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, negative_slope: float) -> Any:
    saved, changes = _saving_jvp(dense, tangents, structure, negative_slope=negative_slope)
    return saved[:1], changes[:1]


def _jvp_of_components(operator: Operator, lower: Callable[..., Any]) -> Callable[..., Any]:
    def rule(dense: list[Any], tangents: list[Any], structure: Structure, **params: Any) -> Any:
        out = operator(*dense, structure, **params)
        return out, jax.jvp(lambda *xs: lower(*xs, structure, **params), tuple(dense), tuple(tangents))[1]

    return rule


def _tangent_transpose(cotangents: list[Any], *operands: Any, negative_slope: float) -> list[Any]:
    *dense, structure = operands
    return list(attention_backward(*dense[3:], cotangents[0], structure, negative_slope=negative_slope))


attention.def_jvp(_jvp)
attention_saving.def_jvp(_saving_jvp)
attention_tangent.def_jvp(_jvp_of_components(attention_tangent, _tangent))
attention_tangent.def_transpose(3, _tangent_transpose)
attention_backward.def_jvp(_jvp_of_components(attention_backward, _backward))
for operator, loops_at in ((attention, 3), (attention_saving, 3), (attention_tangent, 6), (attention_backward, 3)):
    operator.def_batching("heads", shared=loops_at)
