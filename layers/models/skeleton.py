"""Common structure of most models: the order of dropout, layer, normalisation, shortcut and activation, through the depth.

A model owns its layers as `convs`, so that the first layer's parameters are always those under `convs/0`. It passes them
to its `Skeleton`, which owns the rest and is independent of the kind of layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.attention import kept
from dorylax.layers.dropout import Dropout
from dorylax.layers.inputs import follow_input
from dorylax.layers.jumping import JumpingKnowledge, JumpKind, check_jk
from dorylax.layers.linear import linear
from dorylax.layers.norm import NormKind, apply_norm, check_norm, make_norm
from dorylax.ops.row_random import vertex_ids

Activation = Callable[[jax.Array], jax.Array]
Layer = Callable[[CompressedGraph, jax.Array], jax.Array]


@final
class Skeleton(nnx.Module):
    r"""Runs layers one after another.

    With layer l called f_l, of L layers:

        x_{l+1} = σ(norm_l(f_l(dropout(x_l))) + skip_l(x_l))    for l < L - 1
        x_L     = f_{L-1}(dropout(x_{L-1})) + skip_{L-1}(x_{L-1})

    With `residual` there are shortcuts: the identity if a layer's widths are equal, otherwise a product with a separate
    matrix.

    With jumping knowledge there is no last layer: the first line holds for all l < L, and the output is
    out(dropout(join(x_1, …, x_L))), by `JumpingKnowledge`.

    Args:
        widths: Width of each layer's input and output, `[(F_0, F_1), (F_1, F_2), …]`.
        out_features: Width of the output rows; without jumping knowledge, that of the last layer.
        dropout: Probability of dropping an element of a layer's input.
        norm: Normalisation (`layers.norm.make_norm`).
        residual: Whether there are shortcuts.
        jk: Jumping knowledge: "none", "concat" or "max".
        activation: Σ.
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        dropouts: One `Dropout` per layer, and one more for the rows joined by jumping knowledge.
        norms: One normalisation per layer except the last (with jumping knowledge, including the last); empty for "none".
        shortcuts: One `Shortcut` per layer; empty without `residual`.
        jump: The `JumpingKnowledge`, or None.

    Raises:
        ValueError: `dropout` outside 0 … 1, unknown norm or jk.

    Shapes:
        - input: graph with V vertices, features `[V, F_0]`
        - output: `[V, out_features]`
    """

    def __init__(
        self,
        widths: Sequence[tuple[int, int]],
        out_features: int,
        *,
        dropout: float,
        norm: NormKind,
        residual: bool,
        jk: JumpKind,
        activation: Activation,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        self.activation = activation
        check_norm(norm)  # a single layer creates no norm that would check it
        check_jk(jk)
        jumps = jk != "none"
        self.dropouts = nnx.List([Dropout(dropout, rngs=rngs) for _ in range(len(widths) + jumps)])
        normed = widths if jumps else widths[:-1]
        norms = [make_norm(norm, out, dtype=dtype, param_dtype=param_dtype, rngs=rngs) for _, out in normed]
        self.norms = nnx.List([made for made in norms if made is not None])
        self.shortcuts = nnx.List(
            [Shortcut(*pair, dtype=dtype, param_dtype=param_dtype, rngs=rngs) for pair in widths] if residual else []
        )
        self.jump = nnx.data(
            None
            if jk == "none"
            else JumpingKnowledge(
                jk, [out for _, out in widths], out_features, dtype=dtype, param_dtype=param_dtype, rngs=rngs
            )
        )

    def __call__(self, layers: Sequence[Layer], graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Run `layers` (as many as there are widths) on features `[V, F_0]`; return `[V, out_features]`."""
        ids = vertex_ids(graph)
        rows = []
        for depth, layer in enumerate(layers):
            y = layer(graph, self.dropouts[depth](x, ids))
            last = depth == len(layers) - 1 and self.jump is None
            if self.norms and not last:
                y = apply_norm(self.norms[depth], y, graph)
            if self.shortcuts:
                y = y + self.shortcuts[depth](x)
            x = y if last else self.activation(y)
            if not last and kept(self):
                self.sow(nnx.Intermediate, "hidden", x)
            rows.append(x)
        if self.jump is None:
            return x
        return self.jump.out(self.dropouts[-1](self.jump.join(rows), ids))


@final
class Shortcut(nnx.Module):
    """Identity if the widths are equal, else a product with a matrix; He et al., arXiv:1512.03385, eqs. 1 and 2.

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows.
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the matrix (default: float32).
        rngs: Stream `params` for the matrix.

    Shapes:
        - input: `[V, in_features]`
        - output: `[V, out_features]`
    """

    def __init__(
        self, in_features: int, out_features: int, *, dtype: DTypeLike | None, param_dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        self.dtype = dtype
        self.projection = nnx.data(
            None
            if in_features == out_features
            else linear(in_features, out_features, use_bias=False, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        )

    def __call__(self, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]` from `[V, in_features]`."""
        if self.projection is None:
            (x,) = follow_input((x,), dtype=self.dtype)
            return x
        return self.projection(x)


def layer_widths(
    in_features: int, hidden_features: int, out_features: int, num_layers: int, jk: JumpKind = "none"
) -> list[tuple[int, int]]:
    """Return the widths of each layer's input and output: `in → hidden → … → hidden → out`, in `num_layers` steps.

    With jumping knowledge, which adds an output layer, all of them return hidden rows.

    Raises:
        ValueError: A number is below 1.
    """
    for name, value in (
        ("in_features", in_features),
        ("hidden_features", hidden_features),
        ("out_features", out_features),
        ("num_layers", num_layers),
    ):
        if value < 1:
            raise ValueError(f"{name} must be ≥ 1, got {value}")
    last = out_features if jk == "none" else hidden_features
    return list(itertools.pairwise([in_features, *[hidden_features] * (num_layers - 1), last]))
