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


class LSTMSAGE(nnx.Module):
    """The LSTM aggregator needs an order of neighbours: a table of sampled ones."""

    def __init__(self, *, rngs):
        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(F, H, rngs=rngs))
        self.fc = nnx.Linear(F + H, C, rngs=rngs)

    def __call__(self, graph, x, neighbours):
        return self.fc(jnp.concatenate([x, self.rnn(x[neighbours])[:, -1]], axis=1))


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


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(params=0, dropout=1)), paper, **case)


CASES = {
    "GCN ogbn-arxiv": Outside(
        lambda: ArxivGCN(F, H, C, rngs=nnx.Rngs(params=0, dropout=1)), "Hu et al., NeurIPS 2020", loss=nll_loss
    ),
    "GraphSAGE LSTM": _nnx(
        LSTMSAGE,
        "Hamilton et al., NeurIPS 2017",
        inputs=("neighbours",),
        refused="indexing of the vertex axis",
    ),
    "Dir-GNN": _nnx(DirGNN, "Rossi et al., LoG 2023"),
    "DAGNN": _nnx(DAGNN, "Liu et al., KDD 2020"),
    "GCN multi-label": Outside(
        lambda: ArxivGCN(F, H, C, 2, 0.0, rngs=nnx.Rngs(0)),
        "Zeng et al., ICLR 2020",
        labels="indicators",
        loss=lambda logits, y: optax.sigmoid_binary_cross_entropy(logits, y).sum(-1),
    ),
}
