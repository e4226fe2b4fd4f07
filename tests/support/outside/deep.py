"""Deep and recurrent networks, and what is done to train them: scans, remat, dropping edges, noise, state, low precision."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from dorylax import ops
from support.outside.case import C, F, H, Outside


class JKNet(nnx.Module):
    """A bidirectional LSTM reads the layers' outputs of each vertex and scores them."""

    def __init__(self, layers=3, *, rngs):
        self.lins = nnx.List([nnx.Linear(F if i == 0 else H, H, rngs=rngs) for i in range(layers)])
        self.fwd, self.bwd = nnx.LSTMCell(H, 3, rngs=rngs), nnx.LSTMCell(H, 3, rngs=rngs)
        self.att, self.out = nnx.Linear(6, 1, rngs=rngs), nnx.Linear(H, C, rngs=rngs)

    def read(self, cell, xs):
        zeros = jnp.zeros((xs.shape[1], 3), xs.dtype)
        return jax.lax.scan(cell, (zeros, zeros), xs)[1]

    def __call__(self, graph, x):
        xs = []
        for lin in self.lins:
            x = nnx.relu(ops.gather(graph, lin(x), reduce="mean") + lin(x))
            xs.append(x)
        xs = jnp.stack(xs)
        states = jnp.concatenate([self.read(self.fwd, xs), self.read(self.bwd, xs[::-1])[::-1]], -1)
        alpha = jax.nn.softmax(self.att(states), axis=0)
        return self.out((xs * alpha).sum(0))


class Block(nn.Module):
    @nn.compact
    def __call__(self, carry, _):
        graph, h = carry
        z = nn.Dense(H)(nn.LayerNorm()(h))
        return (graph, h + nn.gelu(ops.gather(graph, z, reduce="mean"))), None


class ScannedGCN(nn.Module):
    """Layers as one scan over stacked parameters, each rematerialised."""

    layers: int = 3

    @nn.compact
    def __call__(self, graph, x):
        stack = nn.scan(nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers)
        (_, h), _ = stack()((graph, nn.Dense(H)(x)), None)
        return nn.Dense(C)(h)


class NNXScannedSAGE(nnx.Module):
    def __init__(self, layers=3, *, rngs):
        self.enter = nnx.Linear(F, H, rngs=rngs)

        @nnx.split_rngs(splits=layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs):
            return nnx.Linear(2 * H, H, rngs=rngs)

        self.layers = make(rngs)
        self.leave = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        @nnx.remat
        def forward(h, layer):
            return h + nnx.tanh(layer(jnp.concatenate([h, ops.gather(graph, h, reduce="mean")], -1)))

        return self.leave(forward(self.enter(x), self.layers))


def drop_edge(params, graph, x, *, key, training=False, p=0.3):
    """Some edges are left out for an epoch, and the rest normalised anew."""
    w = jnp.ones((graph.num_edges,), x.dtype)
    if training:
        w = w * jax.random.bernoulli(key, 1 - p, (graph.num_edges,))
    deg = ops.gather_edges(graph, w) + 1
    d = jax.lax.rsqrt(deg)
    norm = w * ops.scatter_src(graph, d) * ops.scatter_dst(graph, d)
    for i, (kernel, bias) in enumerate(params):
        x = x @ kernel
        x = ops.gather(graph, x, norm) + x / deg[:, None] + bias
        x = jax.nn.relu(x) if i == 0 else x
    return x


class NeuralSparse(nn.Module):
    """Which edges there are is learnt: a relaxed Bernoulli variable for each."""

    temperature: float = 0.7

    @nn.compact
    def __call__(self, graph, x, deterministic: bool = True):
        h = nn.Dense(H)(x)
        pair = jnp.concatenate([ops.scatter_src(graph, h), ops.scatter_dst(graph, h)], -1)
        logits = nn.Dense(1)(nn.relu(nn.Dense(H)(pair)))[..., 0]
        if not deterministic:
            logits += jax.random.logistic(self.make_rng("dropout"), logits.shape, logits.dtype)
        z = nn.sigmoid(logits / self.temperature)
        out = ops.gather(graph, h, z) / (ops.gather_edges(graph, z)[:, None] + 1e-3)
        return nn.Dense(C)(nn.relu(out + h))


class SpectralSAGE(nn.Module):
    """Weights divided by their largest singular value, which a power iteration follows."""

    @nn.compact
    def __call__(self, graph, x, train: bool = False):
        for dim in (H, C):
            h = nn.SpectralNorm(nn.Dense(dim))(x, update_stats=train)
            x = nn.tanh(ops.gather(graph, h, reduce="mean") + h)
        return x


class RunningMean(nnx.Module):
    """A running mean that is used as soon as it has moved, and a warm-up by a counter."""

    def __init__(self, *, rngs):
        self.enter, self.leave = nnx.Linear(F, H, rngs=rngs), nnx.Linear(H, C, rngs=rngs)
        self.mean = nnx.BatchStat(jnp.zeros(H))
        self.step = nnx.Variable(jnp.array(0))

    def __call__(self, graph, x):
        h = ops.gather(graph, self.enter(x), reduce="mean") + self.enter(x)
        self.step[...] = self.step[...] + 1
        self.mean[...] = 0.9 * self.mean[...] + 0.1 * jax.lax.stop_gradient(h.mean(axis=0))
        warmup = jnp.minimum(self.step[...] / 10, 1.0)
        return self.leave(nnx.relu(h - warmup * self.mean[...]))


class HalfGCN(nnx.Module):
    """Computes in bfloat16, keeps parameters in float32, gives its logits in float32."""

    def __init__(self, *, rngs):
        linear = functools.partial(nnx.Linear, dtype=jnp.bfloat16, param_dtype=jnp.float32, rngs=rngs)
        self.lin1, self.lin2 = linear(F, H), linear(H, C)

    def __call__(self, graph, x):
        h = self.lin1(x.astype(jnp.bfloat16))
        h = nnx.relu(ops.gather(graph, h, reduce="mean") + h)
        return (ops.gather(graph, self.lin2(h), reduce="mean") + self.lin2(h)).astype(jnp.float32)


@jax.custom_vjp
def binarize(x):
    return jnp.where(x >= 0, 1.0, -1.0).astype(x.dtype)


binarize.defvjp(lambda x: (binarize(x), x), lambda x, g: (jnp.where(jnp.abs(x) <= 1, g, 0),))


def bi_gcn(params, graph, x):
    """Binarised features and weights; gradients go straight through."""
    for i, w in enumerate(params["weights"]):
        scale = jnp.mean(jnp.abs(w), axis=0)
        alpha = jnp.mean(jnp.abs(x), axis=1, keepdims=True)
        h = alpha * (binarize(x) @ binarize(w)) * scale
        x = ops.gather(graph, h, reduce="mean") + h
        x = x - x.mean(axis=0) if i == 0 else x
    return x


@jax.custom_jvp
def squareplus(x, b=4.0):
    return 0.5 * (x + jnp.sqrt(x**2 + b))


@squareplus.defjvp
def _squareplus_jvp(primals, tangents):
    (x, b), (dx, _) = primals, tangents
    root = jnp.sqrt(x**2 + b)
    return 0.5 * (x + root), 0.5 * (1 + x / root) * dx


def squareplus_sage(params, graph, x):
    for layer in params:
        x = squareplus(x @ layer["self"] + ops.gather(graph, x, reduce="mean") @ layer["near"])
    return x


class IdEmbedding(nnx.Module):
    """Vertices without features of their own have a row of a table each, which nnx.Embed gives in float32."""

    def __init__(self, num_nodes=160, *, rngs):
        self.embed = nnx.Embed(num_nodes, H, rngs=rngs)
        self.lin = nnx.Linear(F + 2 * H, C, rngs=rngs)

    def __call__(self, graph, x):
        z = self.embed(ops.vertex_ids(graph))
        return self.lin(jnp.concatenate([x, z, ops.gather(graph, z, reduce="mean")], axis=-1))


class SignInvariantPE(nnx.Module):
    """SignNet on eigenvectors, whose signs are also flipped at random in each epoch."""

    def __init__(self, *, rngs):
        self.phi = nnx.Sequential(nnx.Linear(1, H, rngs=rngs), nnx.relu, nnx.Linear(H, 2, rngs=rngs))
        self.rho = nnx.Linear(2 * H, H, rngs=rngs)
        self.head = nnx.Linear(F + 2 * H, C, rngs=rngs)
        self.rngs = nnx.Rngs(dropout=rngs.dropout())

    def __call__(self, graph, x, lap_pe):
        sign = jax.random.rademacher(self.rngs.dropout(), (1, lap_pe.shape[1]), dtype=lap_pe.dtype)
        v = (lap_pe * sign)[..., None]
        pe = self.rho((self.phi(v) + self.phi(-v)).reshape(x.shape[0], -1)) + 0.1 * lap_pe * sign
        return self.head(jnp.concatenate([x, pe, ops.gather(graph, pe, reduce="mean")], axis=1))


class HistoricalGCN(nnx.Module):
    """GNNAutoScale keeps every vertex's last hidden row."""

    def __init__(self, num_nodes=20, *, rngs):
        self.enter, self.leave = nnx.Linear(F, H, rngs=rngs), nnx.Linear(H, C, rngs=rngs)
        self.history = nnx.Variable(jnp.zeros((num_nodes, H)))

    def __call__(self, graph, x):
        h = nnx.relu(self.enter(x)) + 0.5 * self.history[...]
        self.history[...] = jax.lax.stop_gradient(h)
        return self.leave(ops.gather(graph, h, reduce="mean"))


def _layers(*sizes, seed=0):
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    return [jax.nn.initializers.glorot_uniform()(k, s) for k, s in zip(keys, sizes, strict=True)]


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(params=0, dropout=1)), paper, **case)


def _function(function, paper, make, **case):
    return Outside(lambda: (function, make()), paper, **case)


CASES = {
    "JK-Net LSTM": _nnx(JKNet, "Xu et al., ICML 2018"),
    "linen scan, remat": Outside(ScannedGCN, "Li et al., ICML 2021"),
    "NNX scan, remat": _nnx(NNXScannedSAGE, "Li et al., ICML 2021"),
    "DropEdge": _function(
        drop_edge,
        "Rong et al., ICLR 2020",
        lambda: list(zip(_layers((F, H), (H, C)), [jnp.zeros(H), jnp.zeros(C)], strict=True)),
    ),
    "NeuralSparse": Outside(NeuralSparse, "Zheng et al., ICML 2020"),
    "spectral norm": Outside(SpectralSAGE, "Miyato et al., ICLR 2018"),
    "running mean used at once": _nnx(RunningMean, "Ioffe, NeurIPS 2017"),
    "bfloat16": _nnx(HalfGCN, "Micikevicius et al., ICLR 2018", rounding=2**-7),
    "Bi-GCN": _function(bi_gcn, "Wang et al., CVPR 2021", lambda: {"weights": _layers((F, H), (H, C))}),
    "squareplus": _function(
        squareplus_sage,
        "Barron, arXiv 2021",
        lambda: [dict(zip(("self", "near"), _layers(s, s, seed=s[0]), strict=True)) for s in ((F, H), (H, C))],
    ),
    "vertex embeddings": _nnx(IdEmbedding, "You et al., AAAI 2021", rounding=2**-23),
    "SignNet": _nnx(SignInvariantPE, "Lim et al., ICLR 2023", inputs=("lap_pe",)),
    "GNNAutoScale": _nnx(
        HistoricalGCN, "Fey et al., ICML 2021", refused="keeps a row for each vertex as its state history"
    ),
}
