"""Flax Linen twins of four models, written as a user of Linen would."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from dorylax import ops


class LinenGCN(nn.Module):
    widths: tuple[int, ...]
    rate: float = 0.5

    @nn.compact
    def __call__(self, graph: Any, x: Any, *, deterministic: bool) -> Any:
        scale = jax.lax.rsqrt(ops.in_degrees(graph, x.dtype) + 1)[:, None]
        for depth, width in enumerate(self.widths):
            x = nn.Dropout(self.rate, deterministic=deterministic)(x)
            h = scale * nn.Dense(width, use_bias=False, param_dtype=x.dtype)(x)
            x = scale * (ops.gather(graph, h) + h)
            if depth < len(self.widths) - 1:
                x = nn.relu(x)
        return x


class LinenGAT(nn.Module):
    widths: tuple[int, ...]
    heads: int = 2

    @nn.compact
    def __call__(self, graph: Any, x: Any, train: bool = False) -> Any:
        for depth, width in enumerate(self.widths):
            z = nn.DenseGeneral((self.heads, width), use_bias=False, param_dtype=x.dtype)(x)
            source = self.param(f"source{depth}", nn.initializers.normal(0.3), (self.heads, width), x.dtype)
            target = self.param(f"target{depth}", nn.initializers.normal(0.3), (self.heads, width), x.dtype)
            scores = ops.scatter_src(graph, (z * source).sum(-1)) + ops.scatter_dst(graph, (z * target).sum(-1))
            alpha = ops.edge_softmax(graph, nn.leaky_relu(scores, 0.2))
            alpha = nn.Dropout(0.3, deterministic=not train)(alpha)
            x = (ops.gather(graph, z, alpha) + z).mean(axis=1)
            if depth < len(self.widths) - 1:
                x = nn.elu(x)
        return x


class LinenSAGE(nn.Module):
    widths: tuple[int, ...]
    reduce: Any = "mean"

    @nn.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        for depth, width in enumerate(self.widths):
            near = ops.gather(graph, nn.relu(nn.Dense(5, param_dtype=x.dtype)(x)), reduce=self.reduce)
            x = nn.Dense(width, param_dtype=x.dtype)(jnp.concatenate([x, near], axis=-1))
            if depth < len(self.widths) - 1:
                x = nn.relu(x)
        return x


class LinenGIN(nn.Module):
    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        layer = nn.remat(LinenGINLayer)
        for depth, width in enumerate(self.widths):
            x = layer(width, name=f"layer{depth}")(graph, x)
        return x


class LinenGINLayer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        epsilon = self.param("epsilon", nn.initializers.constant(0.1), (), x.dtype)
        h = nn.Dense(6, param_dtype=x.dtype)((1 + epsilon) * x + ops.gather(graph, x))
        h = nn.LayerNorm(param_dtype=x.dtype)(h)
        return nn.Dense(self.width, param_dtype=x.dtype)(nn.gelu(h))
