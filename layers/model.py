"""The common structure of models: a stack of convolutions, and the skeleton around them.

A model is its convolution and its defaults: a subclass of `Model` that names the class of its layers as `conv`, and those
of their arguments that it takes too; `conv` describes them. It owns its layers as `convs`, so that the first layer's
parameters are always those under `convs/0`. Its `Skeleton` owns the rest and is independent of the kind of layer.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dorylax.graph.compressed import CompressedGraph
from dorylax.layers.base import captures, check_choice, check_counts, follow_input, linear, module
from dorylax.layers.dropout import Dropout
from dorylax.layers.norm import NormKind, apply_norm, make_norm
from dorylax.ops.row_random import vertex_ids

Activation = Callable[[jax.Array], jax.Array]
JumpKind = Literal["none", "concat", "max"]
Layer = Callable[..., jax.Array]
"""A graph layer: called as `layer(graph, x)`, and with further inputs of its kind."""


@module
class Model(nnx.Module):
    """Base class of models: `num_layers` convolutions and the `Skeleton` around them.

    A model is called as `model(graph, x [V, in_features]) -> [V, out_features]`, a row for each vertex of the graph.

    Args:
        in_features: Width of the input rows.
        hidden_features: Width of the hidden rows.
        out_features: Width of the output rows: the number of classes.
        num_layers: Number of layers; 1 means no hidden rows (default: 2).
        dropout: Probability of dropping an element of each layer's input (default: 0.5).
        norm: Normalization between layer and activation (`layers.norm.make_norm`; default: "none").
        residual: Whether to add each layer's input to its output, by a matrix where widths differ (default: False).
        jk: Jumping knowledge: "none", or "concat" or "max" of all layers' rows, followed by a linear output layer
            (default: "none").
        activation: σ, between layers (default: ReLU).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` and `dropout`.

    Attributes:
        convs: The layers, first to last.
        skeleton: Dropout, norms and shortcuts around them; see `Skeleton` for the exact order.

    Raises:
        ValueError: A width or `num_layers` below 1, or an option that is unknown or out of range.
    """

    conv: ClassVar[Any]
    in_features: int = dataclasses.field(kw_only=False)
    hidden_features: int = dataclasses.field(kw_only=False)
    out_features: int = dataclasses.field(kw_only=False)
    num_layers: int = 2
    dropout: float = 0.5
    norm: NormKind = "none"
    residual: bool = False
    jk: JumpKind = "none"
    activation: Activation = jax.nn.relu
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        check_sizes(self)
        widths = self.widths()
        self.convs = nnx.List([self.new_conv(depth, *pair, rngs=rngs) for depth, pair in enumerate(widths)])
        self.skeleton = Skeleton(self, widths, rngs)

    def widths(self, heads: int = 1) -> list[tuple[int, int]]:
        """Return the widths of each layer's input and output; hidden rows are `heads · hidden_features` wide."""
        hidden = heads * self.hidden_features
        last = self.out_features if self.jk == "none" else hidden
        return list(itertools.pairwise([self.in_features, *[hidden] * (self.num_layers - 1), last]))

    def new_conv(self, depth: int, in_features: int, out_features: int, **options: Any) -> Any:  # noqa: ARG002
        """Return a new layer for a place in the stack, from 0; the arguments that layer and model share are passed on."""
        names = {field.name for field in dataclasses.fields(self.conv)} - {"in_features", "out_features", *options}
        shared = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return self.conv(in_features, out_features, **shared, **options)

    def __call__(self, graph: CompressedGraph, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]` from features `x [V, in_features]`."""
        return self.skeleton(self.convs, graph, x)


@final
class Skeleton(nnx.Module):
    r"""Dropout, normalization, shortcut, activation and jumping knowledge around a sequence of layers.

    With layer l called f_l, of L layers:

        x_{l+1} = σ(norm_l(f_l(dropout(x_l))) + skip_l(x_l))    for l < L - 1
        x_L     = f_{L-1}(dropout(x_{L-1})) + skip_{L-1}(x_{L-1})

    With `residual` there are shortcuts: the identity if a layer's widths are equal, otherwise a product with a separate
    matrix. With jumping knowledge there is no last layer: the first line holds for all l < L, and the output is
    out(dropout(join(x_1, …, x_L))), by `JumpingKnowledge`.

    Args:
        options: The model, from which the skeleton takes its options and `out_features`.
        widths: Width of each layer's input and output, `[(F_0, F_1), (F_1, F_2), …]`.
        rngs: Streams `params` and `dropout`.

    Attributes:
        dropouts: One `Dropout` per layer, and one more for the rows joined by jumping knowledge.
        norms: One normalization per layer except the last (with jumping knowledge, including the last); empty for "none".
        shortcuts: One `Shortcut` per layer; empty without `residual`.
        jump: The `JumpingKnowledge`, or None.
    """

    def __init__(self, options: Model, widths: Sequence[tuple[int, int]], rngs: nnx.Rngs) -> None:
        check_choice("norm", options.norm, NormKind)  # a single layer creates no norm that would check it
        check_choice("jk", options.jk, JumpKind)
        self.activation = options.activation
        dtypes: dict[str, Any] = {"dtype": options.dtype, "param_dtype": options.param_dtype}
        outs = [out for _, out in widths]
        normed = outs[:-1] if options.jk == "none" else outs
        dropouts = range(len(normed) + 1)
        self.dropouts = nnx.List([Dropout(options.dropout, rngs=rngs) for _ in dropouts])
        norms = [make_norm(options.norm, out, **dtypes, rngs=rngs) for out in normed]
        self.norms = nnx.List([made for made in norms if made is not None])
        shortcuts = widths if options.residual else []
        self.shortcuts = nnx.List([Shortcut(*pair, **dtypes, rngs=rngs) for pair in shortcuts])
        jump = None
        if options.jk != "none":
            jump = JumpingKnowledge(options.jk, outs, options.out_features, **dtypes, rngs=rngs)
        self.jump = nnx.data(jump)

    def __call__(
        self, layers: Iterable[Layer], graph: CompressedGraph, x: Float[Array, "V F"], *inputs: jax.Array | None
    ) -> Float[Array, "V C"]:
        """Run `layers` (as many as there are widths), each as `layer(graph, rows, *inputs)`; return `[V, out_features]`."""
        ids = vertex_ids(graph)
        rows: list[jax.Array] = []
        for depth, layer in enumerate(layers):
            y = layer(graph, self.dropouts[depth](x, ids), *inputs)
            last = self.jump is None and depth == len(self.dropouts) - 1
            if self.norms and not last:
                y = apply_norm(self.norms[depth], y, graph)
            if self.shortcuts:
                y = y + self.shortcuts[depth](x)
            x = y if last else self.activation(y)
            if not last and captures(self):
                self.sow(nnx.Intermediate, "hidden", x)
            rows.append(x)
        if self.jump is None:
            return x
        return self.jump.out(self.dropouts[-1](self.jump.join(rows), ids))


@final
class Shortcut(nnx.Module):
    """Identity if the widths are equal, else a product with a matrix; He et al., arXiv:1512.03385, eqs. 1 and 2.

    `[V, in_features]` → `[V, out_features]`; `options` are those of `nnx.Linear`.
    """

    def __init__(self, in_features: int, out_features: int, *, dtype: DTypeLike | None = None, **options: Any) -> None:
        options |= {"use_bias": False, "dtype": dtype}
        self.dtype = dtype
        self.projection = nnx.data(
            None if in_features == out_features else linear(in_features, out_features, **options)
        )

    def __call__(self, x: Float[Array, "V F"]) -> Float[Array, "V C"]:
        """Return `[V, out_features]`."""
        return follow_input((x,), dtype=self.dtype)[0] if self.projection is None else self.projection(x)


@final
class JumpingKnowledge(nnx.Module):
    r"""The output of a model from the rows of all layers, not only of the last: Xu et al., ICML 2018.

    "Representation learning on graphs with jumping knowledge networks", https://arxiv.org/abs/1806.03536, section 4.
    In matrices, with X_l `[V, F_l]` the rows after layer l of L, and the maximum element by element,

        concat:  Z = [X_1 ‖ … ‖ X_L] W + b        max:  Z = max(X_1, …, X_L) W + b.

    `join` and `out` are two steps, so that dropout can come between them.

    Args:
        kind: "concat" or "max".
        widths: F_1 … F_L, equal to each other for "max".
        out_features: Width of the output rows.
        **options: Those of `nnx.Linear`.

    Attributes:
        out: `nnx.Linear`, W `[ΣF_l, out_features]` or `[F_l, out_features]`, and b.

    Raises:
        ValueError: Widths that differ, for "max".
    """

    def __init__(
        self, kind: Literal["concat", "max"], widths: Sequence[int], out_features: int, **options: Any
    ) -> None:
        if kind == "max" and len(set(widths)) > 1:
            raise ValueError(f"jk max needs layers of one width, got {list(widths)}")
        self.kind: Literal["concat", "max"] = kind
        self.out = linear(sum(widths) if kind == "concat" else widths[0], out_features, **options)

    def join(self, layers: Sequence[Float[Array, "V _"]]) -> Float[Array, "V C"]:
        """Join the rows of all layers per vertex; for "max", layers that tie for it share its gradient equally."""
        if self.kind == "max":
            return jnp.stack(layers, axis=1).max(axis=1)
        joined: jax.Array = jnp.concatenate(layers, axis=1)
        return joined


def check_sizes(model: Any) -> None:
    """Raise a ValueError if a width or the number of layers of a model is below 1."""
    names = ("in_features", "hidden_features", "out_features", "num_layers")
    check_counts(**{name: getattr(model, name) for name in names})
