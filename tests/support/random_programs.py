"""Random models: chains of operations over rows of vertices and edges, with skips, sharing, loops and dead ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from dorylax import ops

F, C = 4, 3  # width of the features, number of classes
Draw = Callable[..., Any]  # `draw(*shape)` gives the next parameter


@jax.custom_jvp
def _soft_clip(x: Any) -> Any:
    return jnp.where(jnp.abs(x) < 2, x, 2 * jnp.sign(x))


@_soft_clip.defjvp
def _soft_clip_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _soft_clip(x), jnp.where(jnp.abs(x) < 2, t, 0.1 * t)


@jax.custom_vjp
def _scaled_gradient(x: Any) -> Any:
    return x


_scaled_gradient.defvjp(lambda x: (x, None), lambda _, g: (0.5 * g,))


def _attention(ctx: Any, x: Any, y: Any) -> Any:
    z = x @ ctx.draw(x.shape[1], ctx.width)
    scores = ops.scatter_src(ctx.graph, z @ ctx.draw(ctx.width)) + ops.scatter_dst(ctx.graph, z @ ctx.draw(ctx.width))
    return ops.gather(ctx.graph, z, ops.edge_softmax(ctx.graph, jax.nn.leaky_relu(scores)))


def _attention_with_loops(ctx: Any, x: Any, y: Any) -> Any:
    scores, own = ops.scatter_src(ctx.graph, x.sum(axis=1)), x.mean(axis=1)
    alpha, loop = ops.edge_softmax(ctx.graph, scores, own)
    return ops.gather(ctx.graph, x, alpha) + loop[:, None] * x


def _edge_network(ctx: Any, x: Any, y: Any) -> Any:
    ends = jnp.concatenate([ops.scatter_src(ctx.graph, x), ops.scatter_dst(ctx.graph, y)], axis=-1)
    messages = jnp.tanh(ends @ ctx.draw(ends.shape[1], ctx.width) + ctx.draw(ctx.width))
    return ops.gather_edges(ctx.graph, messages, reduce=ctx.pick("sum", "mean", "max", "min"))


def _edge_dropout(ctx: Any, x: Any, y: Any) -> Any:
    keep = jax.random.bernoulli(ctx.key(), 0.7, (ctx.graph.num_edges,))
    return ops.gather(ctx.graph, x, keep.astype(x.dtype) * ctx.weight)


def _scan_of_gathers(ctx: Any, x: Any, y: Any) -> Any:
    step = lambda h, _: (0.5 * ops.gather(ctx.graph, h, reduce="mean") + 0.5 * x, h.sum(axis=1))  # noqa: E731
    h, seen = jax.lax.scan(step, x, None, length=2, reverse=ctx.pick(True, False))
    return h + seen.sum(axis=0)[:, None]


def _scan_of_columns(ctx: Any, x: Any, y: Any) -> Any:
    kernel = ctx.draw(3)

    def step(carry: Any, column: Any) -> tuple[Any, Any]:
        carry = jnp.tanh(kernel[0] * carry + kernel[1] * column + kernel[2])
        return carry, carry

    return jnp.moveaxis(jax.lax.scan(step, x[:, 0], x.T)[1], 0, 1)


def _heads(ctx: Any, x: Any, y: Any) -> Any:
    kernels = ctx.draw(2, x.shape[1], ctx.width)
    return jax.vmap(lambda kernel: ops.gather(ctx.graph, x @ kernel, reduce="mean"))(kernels).max(axis=0)


def _remat(ctx: Any, x: Any, y: Any) -> Any:
    kernel = ctx.draw(x.shape[1], ctx.width)
    return jax.checkpoint(lambda x, kernel: jax.nn.gelu(ops.gather(ctx.graph, jax.jit(jnp.matmul)(x, kernel))))(
        x, kernel
    )


def _shared(ctx: Any, x: Any, y: Any) -> Any:
    kernel = ctx.draw(x.shape[1], x.shape[1])
    return jnp.tanh(ops.gather(ctx.graph, jnp.tanh(x @ kernel), reduce="mean") @ kernel)


def _dead(ctx: Any, x: Any, y: Any) -> Any:
    ops.gather(ctx.graph, jnp.exp(x @ ctx.draw(x.shape[1], 2)))
    return x


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": lambda ctx, x, y: x @ ctx.draw(x.shape[1], ctx.width),
    "bias": lambda ctx, x, y: jnp.tanh(x + ctx.draw(x.shape[1])),
    "relu": lambda ctx, x, y: jax.nn.relu(x),
    "silu": lambda ctx, x, y: jax.nn.silu(x),
    "normalise": lambda ctx, x, y: (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 0.1),
    "softmax": lambda ctx, x, y: jax.nn.softmax(x, axis=-1),
    "sum": lambda ctx, x, y: ops.gather(ctx.graph, x),
    "mean": lambda ctx, x, y: ops.gather(ctx.graph, x, reduce="mean"),
    "max": lambda ctx, x, y: ops.gather(ctx.graph, x, reduce=ctx.pick("max", "min")),
    "weighted": lambda ctx, x, y: ops.gather(ctx.graph, x, ctx.weight),
    "weighted max": lambda ctx, x, y: ops.gather(ctx.graph, x, ctx.weight, reduce="max"),
    "degrees": lambda ctx, x, y: x * jax.lax.rsqrt(ops.in_degrees(ctx.graph, x.dtype) + 1)[:, None],
    "counts": lambda ctx, x, y: x / jnp.sqrt(x.shape[0]) + 0.01 * jnp.arange(x.shape[0])[:, None],
    "attention": _attention,
    "attention with loops": _attention_with_loops,
    "edge network": _edge_network,
    "edge dropout": _edge_dropout,
    "dropout": lambda ctx, x, y: jnp.where(jax.random.bernoulli(ctx.key(), 0.6, x.shape), x / 0.6, 0),
    "scan of gathers": _scan_of_gathers,
    "scan of columns": _scan_of_columns,
    "heads": _heads,
    "remat": _remat,
    "embedding": lambda ctx, x, y: ctx.draw(x.shape[1], ctx.width)[jnp.argmax(x, axis=1)] * jax.nn.sigmoid(x[:, :1]),
    "add": lambda ctx, x, y: x + y @ ctx.draw(y.shape[1], x.shape[1]),
    "concatenate": lambda ctx, x, y: jnp.concatenate([x, y], axis=-1)[:, -4:],
    "multiply": lambda ctx, x, y: x * jnp.tanh(y[:, :1]),
    "cumulate": lambda ctx, x, y: jnp.cumsum(x, axis=1) / x.shape[1],
    "sort": lambda ctx, x, y: jnp.sort(x, axis=1),
    "shared": _shared,
    "dead": _dead,
    "switched": lambda ctx, x, y: jax.lax.cond(ctx.draw(1)[0] > 0, jnp.tanh, jnp.sin, x),
    "clip": lambda ctx, x, y: _soft_clip(x),
    "scaled gradient": lambda ctx, x, y: _scaled_gradient(x),
    "stop": lambda ctx, x, y: x + jax.lax.stop_gradient(jnp.sin(x)),
}


@dataclasses.dataclass(frozen=True)
class RandomModel:
    """A model as a list of steps: operation, which earlier values it reads, and a number for its other choices."""

    steps: tuple[tuple[str, int, int, int], ...]

    def params(self) -> list[np.ndarray]:
        """Parameters of the shapes that the steps ask for."""
        rng, made = np.random.default_rng(len(self.steps)), []

        def draw(*shape: int) -> Any:
            made.append(rng.normal(size=shape) / np.sqrt(shape[0]))
            return jnp.asarray(made[-1])

        from support.graphs import messy_graph

        graph = messy_graph()
        shapes = (
            jax.ShapeDtypeStruct((graph.num_vertices, F), np.float64),
            jax.ShapeDtypeStruct((graph.num_edges,), np.float64),
        )
        jax.eval_shape(lambda x, weight: self._run(draw, graph, x, weight, jax.random.key(0)), *shapes)
        return made

    def __call__(self, params: list[Any], graph: Any, x: Any, weight: Any, key: Any) -> Any:
        """The model, as `trace` takes plain functions."""
        given = iter(params)
        return self._run(lambda *shape: next(given), graph, x, weight, key)

    def _run(self, draw: Draw, graph: Any, x: Any, weight: Any, key: Any) -> Any:
        values = [x]
        for number, (name, first, second, choice) in enumerate(self.steps):
            context = _Context(draw, graph, weight, jax.random.fold_in(key, number), choice)
            values.append(OPERATIONS[name](context, values[-1 - first % len(values)], values[second % len(values)]))
        last = values[-1]
        return last @ draw(last.shape[1], C)


@dataclasses.dataclass(frozen=True)
class _Context:
    draw: Draw
    graph: Any
    weight: Any
    own_key: Any
    choice: int

    @property
    def width(self) -> int:
        return (2, 4)[self.choice % 2]

    def key(self) -> Any:
        return self.own_key

    def pick(self, *options: Any) -> Any:
        return options[self.choice % len(options)]


def random_models() -> st.SearchStrategy[RandomModel]:
    """Models of one to seven steps."""
    step = st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 2), st.integers(0, 6), st.integers(0, 11))
    return st.lists(step, min_size=1, max_size=7).map(lambda steps: RandomModel(tuple(steps)))
