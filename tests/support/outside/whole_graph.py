"""Norms, readouts and pools over all vertices: what needs the whole graph in the middle of the model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from dorylax import ops
from support.outside.case import C, F, H, Outside


class DiffGroupNorm(nnx.Module):
    """Soft groups, each with statistics of its own."""

    def __init__(self, dim, groups=3, lamda=0.01, *, rngs):
        self.lin = nnx.Linear(dim, groups, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(dim * groups, momentum=0.7, rngs=rngs)
        self.groups, self.lamda = groups, lamda

    def __call__(self, x):
        s = jax.nn.softmax(self.lin(x), axis=-1)
        out = s[..., None] * x[:, None]
        out = self.norm(out.reshape(-1, self.groups * x.shape[-1]))
        return x + self.lamda * out.reshape(-1, self.groups, x.shape[-1]).sum(axis=-2)


class DGN(nnx.Module):
    def __init__(self, *, rngs):
        self.lins = nnx.List([nnx.Linear(i, o, rngs=rngs) for i, o in ((F, H), (H, C))])
        self.norm = DiffGroupNorm(H, rngs=rngs)

    def __call__(self, graph, x):
        x = nnx.relu(self.norm(ops.gather(graph, self.lins[0](x), reduce="mean")))
        return ops.gather(graph, self.lins[1](x), reduce="mean") + self.lins[1](x)


def second_moments(params, graph, x):
    """Decorrelated features: whitened by the covariance over all vertices, with Newton's iterations (IterNorm)."""
    h = ops.gather(graph, x, reduce="mean") + x
    n = h.shape[0]
    centred = h - h.mean(0)
    sigma = centred.T @ centred / n + 1e-3 * jnp.eye(F)
    trace = jnp.trace(sigma)
    p = jnp.eye(F)
    for _ in range(3):
        p = 0.5 * (3 * p - p @ p @ p @ (sigma / trace))
    return jax.nn.relu(centred @ (p / jnp.sqrt(trace)) @ params["w1"]) @ params["w2"]


class Set2Set(nnx.Module):
    """An LSTM reads the set of all vertices by softmax attention."""

    def __init__(self, steps=2, score=None, *, rngs):
        self.cell = nnx.LSTMCell(2 * H, H, rngs=rngs)
        self.steps, self.score = steps, score
        self.enter, self.leave = nnx.Linear(F, H, rngs=rngs), nnx.Linear(3 * H, C, rngs=rngs)

    def __call__(self, graph, x):
        x = jnp.tanh(self.enter(x) + ops.gather(graph, self.enter(x), reduce="mean"))
        q_star, carry = jnp.zeros(2 * H, x.dtype), (jnp.zeros(H, x.dtype), jnp.zeros(H, x.dtype))
        for _ in range(self.steps):
            carry, q = self.cell(carry, q_star)
            a = jax.nn.softmax(x @ q) if self.score is None else self.score(x @ q)
            q_star = jnp.concatenate([q, a @ x])
        return self.leave(jnp.concatenate([x, jnp.tile(q_star[None], (x.shape[0], 1))], 1))


def bounded_softmax(scores):
    """x and q are in [-1, 1]: no exponential can overflow, and no maximum need be taken off."""
    e = jnp.exp(scores)
    return e / e.sum()


class DiffPool(nnx.Module):
    """Soft clusters of all vertices, a dense GCN on them, and back (a graph U-Net of one level)."""

    def __init__(self, clusters=3, *, rngs):
        self.assign, self.embed = nnx.Linear(F, clusters, rngs=rngs), nnx.Linear(F, H, rngs=rngs)
        self.coarse, self.head = nnx.Linear(H, H, rngs=rngs), nnx.Linear(2 * H, C, rngs=rngs)

    def __call__(self, graph, x):
        s = jax.nn.softmax(self.assign(ops.gather(graph, x, reduce="mean") + x), axis=-1)
        z = nnx.relu(ops.gather(graph, self.embed(x), reduce="mean"))
        pooled, adj = s.T @ z, s.T @ ops.gather(graph, s)
        adj = adj / (adj.sum(axis=1, keepdims=True) + 1e-9)
        return self.head(jnp.concatenate([z, s @ nnx.relu(adj @ self.coarse(pooled))], axis=1))


class SAGPool(nnx.Module):
    """Keeps the vertices of the highest scores."""

    def __init__(self, k=8, *, rngs):
        self.k = k
        self.score, self.head = nnx.Linear(F, 1, rngs=rngs), nnx.Linear(F, C, rngs=rngs)

    def __call__(self, graph, x):
        score = jnp.tanh(ops.gather(graph, self.score(x))[:, 0])
        _, perm = jax.lax.top_k(score, self.k)
        return self.head(x + (x[perm] * score[perm, None]).mean(0))


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(0)), paper, **case)


def _params(seed=0, **shapes):
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return {n: jax.nn.initializers.glorot_normal()(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)}


CASES = {
    "DiffGroupNorm": _nnx(DGN, "Zhou et al., NeurIPS 2020"),
    "IterNorm": Outside(lambda: (second_moments, _params(w1=(F, H), w2=(H, C))), "Huang et al., CVPR 2019"),
    "Set2Set": _nnx(Set2Set, "Vinyals et al., ICLR 2016", refused="reduction over the vertex axis [reduce_max"),
    "Set2Set, bounded": Outside(lambda: Set2Set(score=bounded_softmax, rngs=nnx.Rngs(0)), "Vinyals et al., ICLR 2016"),
    "DiffPool": _nnx(DiffPool, "Ying et al., NeurIPS 2018"),
    "SAGPool": _nnx(SAGPool, "Lee et al., ICML 2019", refused="indexing of the vertex axis"),
}
