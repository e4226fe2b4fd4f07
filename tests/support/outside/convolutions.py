"""Convolutions over neighbours without edge features: NNX modules in the manner of PyG's and OGB's examples."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from dorylax import ops
from support.outside.case import C, F, H, Outside


class GCNConv(nnx.Module):
    def __init__(self, in_channels, out_channels, *, bias=True, rngs):
        self.lin = nnx.Linear(in_channels, out_channels, use_bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(out_channels)) if bias else None

    def __call__(self, graph, x):
        deg = ops.in_degrees(graph, x.dtype) + 1.0
        norm = (deg**-0.5)[:, None]
        x = self.lin(x) * norm
        x = norm * (ops.gather(graph, x) + x)
        return x if self.bias is None else x + self.bias


class ArxivGCN(nnx.Module):
    """examples/nodeproppred/arxiv/gnn.py of OGB."""

    def __init__(self, in_channels, hidden_channels, out_channels, num_layers=3, dropout=0.5, *, rngs):
        sizes = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nnx.List([GCNConv(i, o, rngs=rngs) for i, o in itertools.pairwise(sizes)])
        self.bns = nnx.List([nnx.BatchNorm(size, rngs=rngs) for size in sizes[1:-1]])
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, graph, x):
        for conv, bn in zip(self.convs, self.bns):  # noqa: B905
            x = self.dropout(jax.nn.relu(bn(conv(graph, x))))
        return jax.nn.log_softmax(self.convs[-1](graph, x), axis=-1)


def nll_loss(log_probs, y):
    return -jnp.take_along_axis(log_probs, jnp.maximum(y, 0)[:, None], axis=-1).squeeze(-1)


class SAGE(nnx.Module):
    def __init__(self, *, rngs):
        self.self1, self.neigh1 = nnx.Linear(F, H, rngs=rngs), nnx.Linear(F, H, use_bias=False, rngs=rngs)
        self.self2, self.neigh2 = nnx.Linear(H, C, rngs=rngs), nnx.Linear(H, C, use_bias=False, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)

    @staticmethod
    def normalize(h):
        return h * jax.lax.rsqrt(jnp.maximum(jnp.sum(h * h, -1, keepdims=True), 1e-12))

    def __call__(self, graph, x):
        h = self.self1(x) + self.neigh1(ops.gather(graph, x, reduce="mean"))
        h = self.drop(self.normalize(nnx.relu(h)))
        return self.self2(h) + self.neigh2(ops.gather(graph, h, reduce="mean"))


class PoolSAGE(nnx.Module):
    def __init__(self, *, rngs):
        self.pool = nnx.Linear(F, 2 * H, rngs=rngs)
        self.fc = nnx.Linear(F + 2 * H, C, rngs=rngs)

    def __call__(self, graph, x):
        h_n = ops.gather(graph, nnx.relu(self.pool(x)), reduce="max")
        return self.fc(jnp.hstack([x, h_n]))


class LSTMSAGE(nnx.Module):
    """The LSTM aggregator needs an order of neighbours: a table of sampled ones."""

    def __init__(self, *, rngs):
        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(F, H, rngs=rngs))
        self.fc = nnx.Linear(F + H, C, rngs=rngs)

    def __call__(self, graph, x, neighbours):
        return self.fc(jnp.concatenate([x, self.rnn(x[neighbours])[:, -1]], axis=1))


class SetSAGE(nnx.Module):
    """A set of neighbours by power means and standard deviations instead (Li et al. 2020, Corso et al. 2020)."""

    def __init__(self, *, rngs):
        self.p = nnx.Param(jnp.full((F,), 1.5))
        self.fc = nnx.Linear(3 * F, C, rngs=rngs)

    def __call__(self, graph, x):
        x = jax.nn.sigmoid(x)
        p = self.p[...]
        power = jnp.power(ops.gather(graph, jnp.power(x, p), reduce="mean") + 1e-7, 1 / p)
        mean = ops.gather(graph, x, reduce="mean")
        var = ops.gather(graph, x**2, reduce="mean") - mean**2
        return self.fc(jnp.concatenate([x, power, jnp.sqrt(nnx.relu(var) + 1e-5)], axis=-1))


class MixHop(nnx.Module):
    def __init__(self, hops=(0, 1, 2), *, rngs):
        self.hops = hops
        self.lins = nnx.Dict({str(j): nnx.Linear(F, H, rngs=rngs) for j in hops})
        self.out = nnx.Linear(H * len(hops), C, rngs=rngs)

    def __call__(self, graph, x):
        outs, h = [], x
        for j in range(max(self.hops) + 1):
            if j in self.hops:
                outs.append(self.lins[str(j)](h))
            h = ops.gather(graph, h, reduce="mean")
        return self.out(nnx.tanh(jnp.concatenate(outs, axis=-1)))


class DirGNN(nnx.Module):
    """Sums over out-edges as the transpose of sums over in-edges."""

    def __init__(self, alpha=0.5, *, rngs):
        self.alpha = alpha
        self.lin_in, self.lin_out = nnx.Linear(F, H, rngs=rngs), nnx.Linear(F, H, rngs=rngs)
        self.head = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x):
        scale_in = jax.lax.rsqrt(jnp.maximum(ops.in_degrees(graph, x.dtype), 1))[:, None]
        scale_out = jax.lax.rsqrt(jnp.maximum(ops.out_degrees(graph, x.dtype), 1))[:, None]

        def adj(h):
            return scale_in * ops.gather(graph, scale_out * h)

        (adj_t_x,) = jax.linear_transpose(adj, x)(x)
        h = self.alpha * self.lin_in(adj(x)) + (1 - self.alpha) * self.lin_out(adj_t_x)
        return self.head(nnx.relu(h))


class ACMGCN(nnx.Module):
    """Low-pass, high-pass and identity channels, mixed by gates of each vertex."""

    def __init__(self, *, rngs):
        self.channels = nnx.List([nnx.Linear(F, H, use_bias=False, rngs=rngs) for _ in range(3)])
        self.scores = nnx.List([nnx.Linear(H, 1, use_bias=False, rngs=rngs) for _ in range(3)])
        self.mix = nnx.Param(jnp.eye(3))
        self.head = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x):
        low, high, mlp = (lin(x) for lin in self.channels)
        low = nnx.relu(ops.gather(graph, low, reduce="mean"))
        high = nnx.relu(high - ops.gather(graph, high, reduce="mean"))
        parts = [low, high, nnx.relu(mlp)]
        logits = jnp.concatenate([nnx.sigmoid(s(h)) for s, h in zip(self.scores, parts, strict=True)], 1)
        att = nnx.softmax(logits @ self.mix / 3.0, axis=1)
        return self.head(3 * jnp.einsum("nk,knd->nd", att, jnp.stack(parts)))


class DAGNN(nnx.Module):
    """Decoupled propagation with a retention score for each hop of each vertex."""

    def __init__(self, k=4, *, rngs):
        self.k = k
        self.mlp = nnx.Sequential(nnx.Linear(F, H, rngs=rngs), nnx.relu, nnx.Linear(H, C, rngs=rngs))
        self.s = nnx.Linear(C, 1, rngs=rngs)

    def __call__(self, graph, x):
        z = self.mlp(x)
        preds = [z]
        for _ in range(self.k):
            z = ops.gather(graph, z, reduce="mean")
            preds.append(z)
        pps = jnp.stack(preds, axis=1)
        retain = nnx.sigmoid(self.s(pps)).transpose(0, 2, 1)
        return jnp.squeeze(retain @ pps, axis=1)


class MonotonicHalting(nnx.Module):
    """How far a vertex looks is monotone in the hops: it goes on with a probability, and stops for good."""

    def __init__(self, hops=3, *, rngs):
        self.hops = hops
        self.enter, self.leave = nnx.Linear(F, H, rngs=rngs), nnx.Linear(H, C, rngs=rngs)
        self.halt = nnx.Linear(H, 1, rngs=rngs)

    def __call__(self, graph, x):
        h = jnp.tanh(self.enter(x))
        states = [h]
        for _ in range(self.hops):
            h = ops.gather(graph, h, reduce="mean")
            states.append(h)
        states = jnp.stack(states)
        go_on = jnp.cumprod(nnx.sigmoid(self.halt(states)), axis=0)
        stay = jnp.concatenate([jnp.ones_like(go_on[:1]), go_on[:-1]])
        return self.leave(jnp.sum(states * (stay - go_on), axis=0))


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(params=0, dropout=1)), paper, **case)


CASES = {
    "GCN ogbn-arxiv": Outside(
        lambda: ArxivGCN(F, H, C, rngs=nnx.Rngs(params=0, dropout=1)), "Hu et al., NeurIPS 2020", loss=nll_loss
    ),
    "GraphSAGE mean": _nnx(SAGE, "Hamilton et al., NeurIPS 2017"),
    "GraphSAGE pool": _nnx(PoolSAGE, "Hamilton et al., NeurIPS 2017"),
    "GraphSAGE LSTM": _nnx(
        LSTMSAGE,
        "Hamilton et al., NeurIPS 2017",
        inputs=("neighbours",),
        refused="indexing of the vertex axis",
    ),
    "GraphSAGE power mean": _nnx(SetSAGE, "Li et al., arXiv 2020"),
    "MixHop": _nnx(MixHop, "Abu-El-Haija et al., ICML 2019"),
    "Dir-GNN": _nnx(DirGNN, "Rossi et al., LoG 2023"),
    "ACM-GCN": _nnx(ACMGCN, "Luan et al., NeurIPS 2022"),
    "DAGNN": _nnx(DAGNN, "Liu et al., KDD 2020"),
    "monotonic halting": _nnx(MonotonicHalting, "Spinelli et al., TNNLS 2020"),
    "GCN multi-label": Outside(
        lambda: ArxivGCN(F, H, C, 2, 0.0, rngs=nnx.Rngs(0)),
        "Zeng et al., ICLR 2020",
        labels="indicators",
        loss=lambda logits, y: optax.sigmoid_binary_cross_entropy(logits, y).sum(-1),
    ),
}
