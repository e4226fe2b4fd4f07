"""Attention over neighbours, and over all vertices: Linen modules and NNX modules."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from dorylax import ops
from support.outside.case import C, F, H, Outside


class UniMPLayer(nn.Module):
    heads: int
    dim: int

    @nn.compact
    def __call__(self, graph, x, edge_attr):
        q, k, v = (nn.DenseGeneral((self.heads, self.dim), name=name)(x) for name in "qkv")
        e = nn.DenseGeneral((self.heads, self.dim), name="edge")(edge_attr)
        k_j, v_j = ops.scatter_src(graph, k) + e, ops.scatter_src(graph, v) + e
        alpha = ops.edge_softmax(graph, (ops.scatter_dst(graph, q) * k_j).sum(-1) / jnp.sqrt(self.dim))
        out = ops.gather_edges(graph, alpha[..., None] * v_j)
        out = out.reshape(*out.shape[:-2], -1)
        r = nn.Dense(self.heads * self.dim)(x)
        beta = nn.sigmoid(nn.Dense(1, use_bias=False)(jnp.concatenate([out, r, out - r], -1)))
        return nn.relu(nn.LayerNorm()((1 - beta) * out + beta * r))


class UniMP(nn.Module):
    """Known labels go in as embeddings beside the features; -1 is not known."""

    @nn.compact
    def __call__(self, graph, x, edge_attr, known):
        label = nn.Embed(C + 1, F)(known + 1)
        x = UniMPLayer(2, 3)(graph, x + label, edge_attr)
        return nn.Dense(C)(UniMPLayer(1, 3)(graph, x, edge_attr))


class PointTransformer(nnx.Module):
    """Vector attention: a softmax for every channel, on differences of positions."""

    def __init__(self, *, rngs):
        self.q, self.k, self.v = (nnx.Linear(F, H, rngs=rngs) for _ in range(3))
        self.delta = nnx.Sequential(nnx.Linear(3, H, rngs=rngs), nnx.relu, nnx.Linear(H, H, rngs=rngs))
        self.gamma = nnx.Sequential(nnx.Linear(H, H, rngs=rngs), nnx.relu, nnx.Linear(H, H, rngs=rngs))
        self.head = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x, pos):
        delta = self.delta(ops.scatter_dst(graph, pos) - ops.scatter_src(graph, pos))
        w = self.gamma(ops.scatter_dst(graph, self.q(x)) - ops.scatter_src(graph, self.k(x)) + delta)
        alpha = ops.edge_softmax(graph, w)
        return self.head(ops.gather_edges(graph, alpha * (ops.scatter_src(graph, self.v(x)) + delta)))


class SGFormer(nnx.Module):
    """One layer of linear attention over all vertices, normalised by Frobenius norms, beside a GCN."""

    def __init__(self, heads=2, *, rngs):
        self.heads = heads
        self.wq, self.wk, self.wv = (nnx.Linear(H, heads * H, rngs=rngs) for _ in range(3))
        self.fc_in, self.fc_out = nnx.Linear(F, H, rngs=rngs), nnx.Linear(H, C, rngs=rngs)
        self.norm = nnx.LayerNorm(H, rngs=rngs)
        self.gcn = nnx.Linear(H, H, rngs=rngs)

    def full_attention_conv(self, qs, ks, vs):
        qs = qs / jnp.linalg.norm(qs)
        ks = ks / jnp.linalg.norm(ks)
        n = qs.shape[0]
        kvs = jnp.einsum("lhm,lhd->hmd", ks, vs)
        num = jnp.einsum("nhm,hmd->nhd", qs, kvs) + n * vs
        normalizer = jnp.einsum("nhm,hm->nh", qs, ks.sum(0))[..., None] + n
        return (num / normalizer).mean(axis=1)

    def __call__(self, graph, x):
        z = jax.nn.relu(self.fc_in(x))
        q, k, v = (w(z).reshape(-1, self.heads, H) for w in (self.wq, self.wk, self.wv))
        trans = self.norm((self.full_attention_conv(q, k, v) + z) / 2)
        return self.fc_out(0.5 * trans + 0.5 * jax.nn.relu(ops.gather(graph, self.gcn(z), reduce="mean")))


class GPSLayer(nnx.Module):
    """Local messages with edge features, global attention with a ReLU kernel, each with BatchNorm, then an MLP."""

    def __init__(self, dim, *, rngs):
        self.edge = nnx.Linear(2, dim, rngs=rngs)
        self.local = nnx.Sequential(nnx.Linear(dim, dim, rngs=rngs), nnx.relu, nnx.Linear(dim, dim, rngs=rngs))
        self.q, self.k, self.v = (nnx.Linear(dim, dim, use_bias=False, rngs=rngs) for _ in range(3))
        self.norms = nnx.List([nnx.BatchNorm(dim, rngs=rngs) for _ in range(3)])
        self.mlp = nnx.Sequential(nnx.Linear(dim, 2 * dim, rngs=rngs), nnx.gelu, nnx.Linear(2 * dim, dim, rngs=rngs))
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def attention(self, x):
        q, k = nnx.relu(self.q(x)) + 1e-3, nnx.relu(self.k(x)) + 1e-3
        return (q @ (k.T @ self.v(x))) / (q @ k.sum(axis=0))[:, None]

    def __call__(self, graph, x, edge_attr):
        messages = nnx.relu(ops.scatter_src(graph, x) + self.edge(edge_attr))
        local = self.norms[0](x + self.dropout(self.local(x + ops.gather_edges(graph, messages))))
        attended = self.norms[1](x + self.dropout(self.attention(x)))
        h = local + attended
        return self.norms[2](h + self.dropout(self.mlp(h)))


class GraphGPS(nnx.Module):
    def __init__(self, *, rngs):
        self.encoder = nnx.Linear(F, H, rngs=rngs)
        self.pe_norm, self.pe_encoder = nnx.BatchNorm(H, rngs=rngs), nnx.Linear(H, 2, rngs=rngs)
        self.layers = nnx.List([GPSLayer(H + 2, rngs=rngs) for _ in range(2)])
        self.head = nnx.Linear(H + 2, C, rngs=rngs)

    def __call__(self, graph, x, edge_attr, lap_pe):
        x = jnp.concatenate([self.encoder(x), self.pe_encoder(self.pe_norm(lap_pe))], -1)
        for layer in self.layers:
            x = layer(graph, x, edge_attr)
        return self.head(x)


class Graphormer(nnx.Module):
    """Every vertex attends to every other."""

    def __init__(self, *, rngs):
        self.enter = nnx.Linear(F, H, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(2, H, decode=False, rngs=rngs)
        self.leave = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x):
        h = self.enter(x) + ops.in_degrees(graph, x.dtype)[:, None]
        return self.leave(h + self.attn(h[None])[0])


class NodeFormer(nn.Module):
    """Positive random features; the stabiliser of the keys is a maximum over all vertices."""

    features: int = 6

    @nn.compact
    def __call__(self, graph, x):
        q, k, v = (nn.Dense(H, name=name)(x) for name in "qkv")
        w = jax.random.normal(jax.random.key(7), (H, self.features)).astype(x.dtype)

        def phi(z, axis):
            z = z / H**0.25
            u = z @ w - 0.5 * jnp.sum(z**2, -1, keepdims=True)
            return jnp.exp(u - jax.lax.stop_gradient(jnp.max(u, axis=axis, keepdims=True))) + 1e-6

        q, k = phi(q, -1), phi(k, (-2, -1))
        return nn.Dense(C)(q @ (k.T @ v) / (q @ k.sum(0))[:, None] + ops.gather(graph, v, reduce="mean"))


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(params=0, dropout=1)), paper, **case)


CASES = {
    "UniMP": Outside(UniMP, "Shi et al., IJCAI 2021", inputs=("edge_attr", "known")),
    "Point Transformer": _nnx(PointTransformer, "Zhao et al., ICCV 2021", inputs=("pos",)),
    "SGFormer": _nnx(SGFormer, "Wu et al., NeurIPS 2023"),
    "GraphGPS": _nnx(GraphGPS, "Rampášek et al., NeurIPS 2022", inputs=("edge_attr", "lap_pe")),
    "Graphormer": _nnx(Graphormer, "Ying et al., NeurIPS 2021", refused="product of every vertex with every other"),
    "NodeFormer": Outside(NodeFormer, "Wu et al., NeurIPS 2022", refused="reduction over the vertex axis [reduce_max"),
}
