"""Models that take sums over all vertices in the middle, as users write them: norms, virtual nodes, readouts, constants."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from dorylax import ops
from support.zoo import C, Case, D, F


class BatchNormGCN(nnx.Module):
    """Two layers with BatchNorm in training mode in between, as in the recipe for ogbn-arxiv."""

    def __init__(self, dtype: Any, *, layers: int = 2, width: int = 4, dropout: float = 0.0) -> None:
        rngs = nnx.Rngs(1)
        widths = [F, *[width] * (layers - 1), C]
        self.convs = nnx.List([nnx.Linear(a, b, param_dtype=dtype, rngs=rngs) for a, b in itertools.pairwise(widths)])
        self.norms = nnx.List(
            [nnx.BatchNorm(width, dtype=dtype, param_dtype=dtype, rngs=rngs) for width in widths[1:-1]]
        )
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = self.dropout(nnx.relu(norm(ops.gather(graph, conv(x), reduce="mean") + conv(x))))
        return ops.gather(graph, self.convs[-1](x), reduce="mean")


class PairNorm(nnx.Module):
    """PairNorm (Zhao and Akoglu, ICLR 2020): centred, and scaled to one mean square norm for the whole graph."""

    def __init__(self, dtype: Any) -> None:
        rngs = nnx.Rngs(1)
        self.first = nnx.Linear(F, 4, param_dtype=dtype, rngs=rngs)
        self.last = nnx.Linear(4, C, param_dtype=dtype, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        h = ops.gather(graph, self.first(x), reduce="mean") + self.first(x)
        h = h - h.mean(axis=0)
        h = h / jnp.sqrt(1e-6 + (h**2).sum(axis=1).mean())
        return self.last(nnx.relu(h))


class GraphNorm(nnx.Module):
    """GraphNorm (Cai et al., ICML 2021): a learnt share of the mean is taken off before the variance is."""

    def __init__(self, dtype: Any) -> None:
        rngs = nnx.Rngs(1)
        self.first = nnx.Linear(F, 4, param_dtype=dtype, rngs=rngs)
        self.last = nnx.Linear(4, C, param_dtype=dtype, rngs=rngs)
        self.share = nnx.Param(jnp.full((4,), 0.8, dtype))
        self.scale = nnx.Param(jnp.full((4,), 1.5, dtype))

    def __call__(self, graph: Any, x: Any) -> Any:
        h = ops.gather(graph, self.first(x), reduce="mean")
        h = h - self.share[...] * ops.global_mean(graph, h)
        h = self.scale[...] * h / jnp.sqrt(ops.global_mean(graph, h**2) + 1e-5)
        return self.last(jnp.tanh(h))


class VirtualNode(nnx.Module):
    """A vertex that all others are joined to: it sums them, has a layer of its own, and is added to all."""

    def __init__(self, dtype: Any) -> None:
        rngs = nnx.Rngs(1)
        self.first = nnx.Linear(F, 4, param_dtype=dtype, rngs=rngs)
        self.virtual = nnx.List([nnx.Linear(4, 4, param_dtype=dtype, rngs=rngs) for _ in range(2)])
        self.last = nnx.Linear(4, C, param_dtype=dtype, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        h = self.first(x)
        node = jnp.zeros(4, h.dtype)
        for layer in self.virtual:
            h = h + node
            node = node + jnp.tanh(layer(node + 0.01 * ops.global_sum(graph, h)))
            h = h + jnp.tanh(ops.gather(graph, h, reduce="mean"))
        return self.last(h + node)


def _aggregations(params: Any, graph: Any, x: Any) -> Any:
    """PNA's scalers (Corso et al., NeurIPS 2020), whose δ is a mean over the graph's vertices."""
    degrees = jnp.log(ops.in_degrees(graph, x.dtype) + 1)
    delta = degrees.mean()
    mean, largest = ops.gather(graph, x, reduce="mean"), ops.gather(graph, x, reduce="max")
    scale = (degrees / delta)[:, None]
    attenuation = jnp.where(degrees > 0, delta / jnp.maximum(degrees, 1e-6), 0)[:, None]
    h = jnp.concatenate([mean, largest, scale * mean, attenuation * largest], axis=1)
    return jnp.tanh(h @ params["in"]) @ params["out"]


def _products(params: Any, graph: Any, x: Any) -> Any:
    """Linear attention of every vertex to every other: two products over all vertices, one of them normalised."""
    q, k = jax.nn.softmax(x @ params["q"], axis=1), jnp.exp(jnp.tanh(x @ params["k"]))
    near = ops.gather(graph, k, reduce="mean")
    context = (k / k.sum(axis=0)).T @ (x @ params["v"])
    return (q @ context + near @ params["mix"]) @ params["out"]


def _edge_means(params: Any, graph: Any, x: Any, edges: Any) -> Any:
    """Messages relative to their mean over all edges."""
    messages = ops.scatter_src(graph, x @ params["in"]) * (edges @ params["edge"])
    messages = messages - messages.mean(axis=0)
    return jnp.tanh(ops.gather_edges(graph, messages)) @ params["out"]


def _random(*shapes: tuple[str, tuple[int, ...]]) -> Any:
    def make(dtype: Any) -> Any:
        rng = np.random.default_rng(4)
        return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes}

    return make


def _function(function: Any, make: Any, inputs: tuple[str, ...] = ("x",)) -> Case:
    return Case(lambda dtype: (function, make(dtype)), inputs)


class LinenBatchNorm(linen.Module):
    """The same in Linen, told whether it trains by an argument."""

    @linen.compact
    def __call__(self, graph: Any, x: Any, train: bool = False) -> Any:
        h = linen.Dense(4, param_dtype=x.dtype, dtype=x.dtype)(x)
        h = ops.gather(graph, h, reduce="mean") + h
        h = linen.BatchNorm(use_running_average=not train, dtype=x.dtype, param_dtype=x.dtype)(h)
        return linen.Dense(C, param_dtype=x.dtype, dtype=x.dtype)(jnp.tanh(h))


SUMMING: dict[str, Case] = {
    "BatchNorm": Case(BatchNormGCN),
    "BatchNorm deep": Case(lambda dtype: BatchNormGCN(dtype, layers=4, dropout=0.3)),
    "linen BatchNorm": Case(lambda dtype: LinenBatchNorm()),
    "PairNorm": Case(PairNorm),
    "GraphNorm": Case(GraphNorm),
    "virtual node": Case(VirtualNode),
    "PNA": _function(_aggregations, _random(("in", (4 * F, 4)), ("out", (4, C)))),
    "products": _function(
        _products, _random(("q", (F, 4)), ("k", (F, 4)), ("v", (F, 4)), ("mix", (4, 4)), ("out", (4, C)))
    ),
    "edge means": _function(_edge_means, _random(("in", (F, 4)), ("edge", (D, 4)), ("out", (4, C))), ("x", "edges")),
}
