"""Jumping knowledge of Xu et al.: the output is made from the rows of all layers, not only of the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.layers.linear import linear

JumpKind = Literal["none", "concat", "max"]


@final
class JumpingKnowledge(nnx.Module):
    r"""Joins the rows of all layers, and applies a linear layer to them: Xu et al., ICML 2018.

    "Representation learning on graphs with jumping knowledge networks", https://arxiv.org/abs/1806.03536, section 4.
    In matrices, with X_l `[V, F_l]` the rows after layer l of L,

        concat:  Z = [X_1 ‖ … ‖ X_L] W + b        max:  Z = max(X_1, …, X_L) W + b

    and for one vertex z_v = W^T [x_{1,v} ‖ … ‖ x_{L,v}] + b, or W^T max_l x_{l,v} + b with the maximum element by
    element.

    `join` and `out` are two steps, so that dropout can come between them.

    Args:
        kind: "concat" or "max".
        widths: F_1 … F_L, equal to each other for "max".
        out_features: Width of the output rows.
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Stream `params` for the parameters.

    Attributes:
        out: `nnx.Linear`, W `[ΣF_l, out_features]` or `[F_l, out_features]`, and b.

    Raises:
        ValueError: Widths that differ, for "max".

    Shapes:
        - input: of `join`, L arrays `[V, F_l]`; of `out`, `[V, ΣF_l]` or `[V, F_l]`
        - output: of `join`, `[V, ΣF_l]` or `[V, F_l]`; of `out`, `[V, out_features]`
    """

    def __init__(
        self,
        kind: Literal["concat", "max"],
        widths: Sequence[int],
        out_features: int,
        *,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        if kind == "max" and len(set(widths)) > 1:
            raise ValueError(f"jk max needs layers of one width, got {list(widths)}")
        self.kind: Literal["concat", "max"] = kind
        width = sum(widths) if kind == "concat" else widths[0]
        self.out = linear(width, out_features, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def join(self, layers: Sequence[Float[Array, "V _"]]) -> Float[Array, "V C"]:
        """Join the rows of all layers per vertex; for "max", layers that tie for it share its gradient equally."""
        if self.kind == "max":
            return jnp.stack(layers, axis=1).max(axis=1)
        joined: jax.Array = jnp.concatenate(layers, axis=1)
        return joined


def check_jk(kind: str) -> None:
    """Refuse values other than a `JumpKind`.

    Raises:
        ValueError: Unknown kind.
    """
    if kind not in get_args(JumpKind):
        raise ValueError(f"jk must be one of {', '.join(get_args(JumpKind))}, got {kind!r}")
