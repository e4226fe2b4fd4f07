"""Additive attention in one operator: scores, softmax and weighted sum, without an array over the edges in any pass.

There are four primitives. Users call `attention`. `attention_saving` also returns the inputs of its derivatives
(kernel/attention.inl has the equations): `tilt`, the derivative of y with respect to the target scores, and per vertex and
head `shift` and `scale`, so that a weight is exp(leaky(s_u + t_v) - shift_v) · scale_v. `attention_tangent` is linear in the
tangents, and `attention_backward` is its transpose.

`written_out` defines them in terms of other operators, with derivatives by JAX. It is their lowering without a kernel, their
second derivative, and their form in programs to be split (`program.tracing.flatten`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dorylax.ops.native import usable
from dorylax.ops.primitives import native_calls
from dorylax.ops.primitives.bilinear import gather_weighted
from dorylax.ops.primitives.linear import expand
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


def _forward_cpu(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> tuple[Any, ...]:
    if not _served(z, s, t, loops):
        return _forward(z, s, t, loops, structure, negative_slope=negative_slope)
    return native_calls.attention(z, s, t, loops, structure, negative_slope=negative_slope)


def _served(*operands: Any) -> bool:
    return usable(*(x.dtype for x in operands)) and operands[0].size > 0


def accumulator(dtype: Any) -> Any:
    """Return the dtype for accumulating sums of this dtype: float32 at least."""
    return jnp.promote_types(dtype, jnp.float32)


def _saving(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> tuple[Any, ...]:
    y = written_out(z, s, t, loops, structure, negative_slope=negative_slope)
    # Only the kernel's derivative reads these, and it computes them itself.
    numbers = jnp.zeros(s.shape, accumulator(s.dtype))
    return y, jnp.zeros_like(z), numbers, numbers


def _saving_cpu(z: Any, s: Any, t: Any, loops: Any, structure: Structure, *, negative_slope: float) -> tuple[Any, ...]:
    if not _served(z, s, t, loops):
        return _saving(z, s, t, loops, structure, negative_slope=negative_slope)
    return native_calls.attention_saving(
        z, s, t, loops, structure, negative_slope=negative_slope, numbers=accumulator(s.dtype)
    )


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


def _backward_cpu(*operands: Any, negative_slope: float) -> tuple[Any, ...]:
    if not _served(*operands[:4]):
        return _backward(*operands, negative_slope=negative_slope)
    return native_calls.attention_backward(*operands, negative_slope=negative_slope)


ATTENTION = SOFTMAX + 3
"""Operations per score: the softmax, the sum of the two ends' scores, and the leaky ReLU."""


def _flops(sums: int) -> Callable[[CallSizes], int]:
    """Return an operator's `flops` for weighted sums of neighbours' rows; the second operand has a score per head."""
    return lambda sizes: sizes.entries * (ATTENTION * sizes.widths[1] + 2 * sums * sizes.widths[0])


_NUMBERS = ResultSpec(like=1, axes=2, dtype=lambda dtypes: accumulator(dtypes[1]))
_OWN, _OWN_SCORE, _OWN_LOOPS = OperandSpec("own"), OperandSpec("own", axes=2), OperandSpec("own", axes=1)
_ROWS, _SCORES = OperandSpec("neighbour"), OperandSpec("neighbour", axes=2)

attention = Operator(
    "attention",
    [_ROWS, _SCORES, _OWN_SCORE, _OWN_LOOPS],
    [ResultSpec()],
    label="GA",
    flops=_flops(1),
    lower=_forward,
    lower_cpu=_forward_cpu,
    several=True,
    written_out=_forward,
)
attention_saving = Operator(
    "attention_saving",
    [_ROWS, _SCORES, _OWN_SCORE, _OWN_LOOPS],
    [ResultSpec(), ResultSpec(), _NUMBERS, _NUMBERS],
    label="GA",
    flops=_flops(2),
    lower=_saving,
    lower_cpu=_saving_cpu,
    several=True,
    written_out=_saving,
)
attention_tangent = Operator(
    "attention_tangent",
    [_ROWS, _SCORES, _OWN_SCORE, _ROWS, _SCORES, _OWN_SCORE, _OWN_LOOPS, _OWN, _OWN, _OWN_SCORE, _OWN_SCORE],
    [ResultSpec()],
    label="GA",
    flops=_flops(3),
    lower=_tangent,
    several=True,
    written_out=_tangent,
)
attention_backward = Operator(
    "attention_backward",
    # Over out-edges, it reads the targets' scores, shifts, scales and cotangents.
    [_OWN, _OWN_SCORE, _SCORES, _OWN_LOOPS, _OWN, _OWN, _SCORES, _SCORES, _ROWS],
    [ResultSpec(), ResultSpec(like=1, axes=2), ResultSpec(like=2, axes=2)],
    label="GA",
    flops=_flops(2),
    lower=_backward,
    lower_cpu=_backward_cpu,
    several=True,
    written_out=_backward,
)


def _saving_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, negative_slope: float) -> Any:
    saved = attention_saving(*dense, structure, negative_slope=negative_slope)
    (dy,) = attention_tangent(*tangents[:3], *dense, *saved, structure, negative_slope=negative_slope)
    # Saved values only serve derivatives, which are differentiated with respect to z, s and t.
    return saved, (dy, *map(jnp.zeros_like, saved[1:]))


def _jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, negative_slope: float) -> Any:
    saved, changes = _saving_jvp(dense, tangents, structure, negative_slope=negative_slope)
    return saved[:1], changes[:1]


def _tangent_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, negative_slope: float) -> Any:
    out = attention_tangent(*dense, structure, negative_slope=negative_slope)
    changed = jax.jvp(
        lambda *six: _tangent(*six, *dense[6:], structure, negative_slope=negative_slope),
        tuple(dense[:6]),
        tuple(tangents[:6]),
    )[1]
    return out, changed


def _tangent_transpose(cotangents: list[Any], *operands: Any, negative_slope: float) -> list[Any]:
    *dense, structure = operands
    return list(attention_backward(*dense[3:], cotangents[0], structure, negative_slope=negative_slope))


def _backward_jvp(dense: list[Any], tangents: list[Any], structure: Structure, *, negative_slope: float) -> Any:
    z, s, t, loops, *saved, ct = dense
    out = attention_backward(*dense, structure, negative_slope=negative_slope)
    changed = jax.jvp(
        lambda z, s, t, ct: _backward(z, s, t, loops, *saved, ct, structure, negative_slope=negative_slope),
        (z, s, t, ct),
        (*tangents[:3], tangents[-1]),
    )[1]
    return out, changed


attention.def_jvp(_jvp)
attention_saving.def_jvp(_saving_jvp)
attention_tangent.def_jvp(_tangent_jvp)
attention_tangent.def_transpose(3, _tangent_transpose)
attention_backward.def_jvp(_backward_jvp)
for operator, loops_at in ((attention, 3), (attention_saving, 3), (attention_tangent, 6), (attention_backward, 3)):
    operator.def_batching("heads", shared=loops_at)
