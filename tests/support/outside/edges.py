"""Messages with edge features, kinds of edges, coordinates: as in molecules, meshes and knowledge graphs."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from dorylax import ops
from support.outside.case import C, D, F, H, Outside, R


class GatedGCNLayer(nnx.Module):
    """Edge gates, BatchNorm on vertices and on edges, residuals on both."""

    def __init__(self, dim, *, rngs):
        self.A, self.B, self.C, self.D, self.E = (nnx.Linear(dim, dim, rngs=rngs) for _ in range(5))
        self.bn_node_x = nnx.BatchNorm(dim, rngs=rngs)
        self.bn_edge_e = nnx.BatchNorm(dim, rngs=rngs)

    def __call__(self, graph, x, e):
        e_ij = ops.scatter_dst(graph, self.D(x)) + ops.scatter_src(graph, self.E(x)) + self.C(e)
        sigma = jax.nn.sigmoid(e_ij)
        num = ops.gather_edges(graph, sigma * ops.scatter_src(graph, self.B(x)))
        h = self.A(x) + num / (ops.gather_edges(graph, sigma) + 1e-6)
        return x + jax.nn.relu(self.bn_node_x(h)), e + jax.nn.relu(self.bn_edge_e(e_ij))


class GatedGCN(nnx.Module):
    def __init__(self, *, rngs):
        self.embedding_h, self.embedding_e = nnx.Linear(F, H, rngs=rngs), nnx.Linear(D, H, rngs=rngs)
        self.layers = nnx.List([GatedGCNLayer(H, rngs=rngs) for _ in range(2)])
        self.readout = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x, edge_attr):
        h, e = self.embedding_h(x), self.embedding_e(edge_attr)
        for layer in self.layers:
            h, e = layer(graph, h, e)
        return self.readout(h)


def init_mlp(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    init = jax.nn.initializers.he_normal()
    return [{"w": init(k, (i, o)), "b": jnp.zeros(o)} for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)]


def mlp(layers, x, activation=jax.nn.silu):
    *hidden, last = layers
    for layer in hidden:
        x = activation(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def dgcnn(params, graph, x):
    """EdgeConv: the largest of MLP(x_i, x_j - x_i) over neighbours j."""
    skips = []
    for layer in params["convs"]:
        x_i, x_j = ops.scatter_dst(graph, x), ops.scatter_src(graph, x)
        x = ops.gather_edges(graph, mlp(layer, jnp.concatenate([x_i, x_j - x_i], -1)), reduce="max")
        skips.append(x)
    return mlp(params["head"], jnp.concatenate(skips, -1))


def init_dgcnn(key=0):
    keys = jax.random.split(jax.random.key(key), 3)
    convs = [init_mlp(keys[0], [2 * F, H, H]), init_mlp(keys[1], [2 * H, H])]
    return {"convs": convs, "head": init_mlp(keys[2], [2 * H, H, C])}


class GINE(nn.Module):
    layers: int = 2

    @nn.compact
    def __call__(self, graph, x, edge_attr, training: bool = False):
        h = nn.Dense(H)(x)
        for i in range(self.layers):
            eps = self.param(f"eps_{i}", nn.initializers.zeros, ())
            msg = nn.relu(ops.scatter_src(graph, h) + nn.Dense(H, name=f"bond_{i}")(edge_attr))
            z = nn.Dense(2 * H)((1 + eps) * h + ops.gather_edges(graph, msg))
            z = nn.relu(nn.BatchNorm(use_running_average=not training)(z))
            h = nn.relu(nn.BatchNorm(use_running_average=not training)(nn.Dense(H)(z)))
        return nn.Dense(C)(h)


class PNA(nnx.Module):
    """Four aggregators and three scalers; δ is the mean of log(d + 1) over the graph."""

    def __init__(self, *, rngs):
        self.pre, self.edge = nnx.Linear(2 * F, H, rngs=rngs), nnx.Linear(D, H, rngs=rngs)
        self.post = nnx.Linear(F + 12 * H, H, rngs=rngs)
        self.out = nnx.Linear(H, C, rngs=rngs)

    def __call__(self, graph, x, edge_attr):
        pair = jnp.concatenate([ops.scatter_dst(graph, x), ops.scatter_src(graph, x)], axis=-1)
        m = self.pre(pair) + self.edge(edge_attr)
        mean = ops.gather_edges(graph, m, reduce="mean")
        std = jnp.sqrt(jax.nn.relu(ops.gather_edges(graph, m * m, reduce="mean") - mean**2) + 1e-5)
        out = [mean, ops.gather_edges(graph, m, reduce="max"), ops.gather_edges(graph, m, reduce="min"), std]
        out = jnp.concatenate(out, axis=-1)
        deg = ops.in_degrees(graph, x.dtype)
        log_deg = jnp.log(deg + 1)[:, None]
        delta = jnp.mean(jnp.log(deg + 1))
        scaled = [out, out * log_deg / delta, out * delta / jnp.maximum(log_deg, jnp.log(2.0))]
        return self.out(jax.nn.relu(self.post(jnp.concatenate([x, *scaled], axis=-1))))


class RGCN(nn.Module):
    """A weight for each kind of edge, of a few bases; messages are averaged within a kind."""

    bases: int = 2

    @nn.compact
    def __call__(self, graph, x, edge_type):
        for i, dim in enumerate((H, C)):
            v = self.param(f"bases_{i}", nn.initializers.xavier_uniform(), (self.bases, x.shape[-1], dim))
            a = self.param(f"coeff_{i}", nn.initializers.xavier_uniform(), (R, self.bases))
            w = jnp.einsum("rb,bio->rio", a, v)
            out = nn.Dense(dim)(x)
            for r in range(R):
                mask = (edge_type == r).astype(x.dtype)
                count = jnp.maximum(ops.gather_edges(graph, mask), 1)[:, None]
                out += ops.gather(graph, x @ w[r], mask) / count
            x = nn.relu(out) if i == 0 else out
        return x


def compgcn(params, graph, x, edge_type):
    """Circular correlation of vertex and relation, by Fourier transforms; relations are transformed layer by layer."""
    rel = params["relations"]
    for layer in params["layers"]:
        x_j, r = ops.scatter_src(graph, x), jnp.take(rel, edge_type, axis=0)
        corr = jnp.fft.irfft(jnp.conj(jnp.fft.rfft(x_j, axis=-1)) * jnp.fft.rfft(r, axis=-1), n=x.shape[-1], axis=-1)
        x = jnp.tanh(ops.gather_edges(graph, corr @ layer["in"], reduce="mean") + x @ layer["loop"])
        rel = rel @ layer["rel"]
    return x @ params["out"]


def init_compgcn():
    k = iter(jax.random.split(jax.random.key(2), 8))
    layers = [{name: jax.random.normal(next(k), (F, F)) / F**0.5 for name in ("in", "loop", "rel")} for _ in range(2)]
    return {
        "relations": jax.random.normal(next(k), (R, F)),
        "layers": layers,
        "out": jax.random.normal(next(k), (F, C)),
    }


class MPNN(nn.Module):
    """NNConv: a network of the edge gives the matrix of its message; a GRU updates the vertex."""

    steps: int = 2

    @nn.compact
    def __call__(self, graph, x, edge_attr):
        h = nn.relu(nn.Dense(H)(x))
        matrices = nn.Dense(H * H)(nn.relu(nn.Dense(6)(edge_attr))).reshape(-1, H, H)
        gru = nn.GRUCell(H)
        for _ in range(self.steps):
            m = jnp.einsum("eij,ej->ei", matrices, ops.scatter_src(graph, h))
            h, _ = gru(h, nn.relu(ops.gather_edges(graph, m, reduce="mean")))
        return nn.Dense(C)(h)


def schnet(params, graph, x, pos):
    """Continuous filters: Gaussians of the distance, and a cosine cut-off."""
    diff = ops.scatter_src(graph, pos) - ops.scatter_dst(graph, pos)
    d = jnp.sqrt(jnp.sum(diff**2, -1) + 1e-12)
    centers = jnp.linspace(0.0, 5.0, 8)
    rbf = jnp.exp(-2.0 * (d[:, None] - centers) ** 2)
    envelope = jnp.where(d < 5.0, 0.5 * (jnp.cos(jnp.pi * d / 5.0) + 1.0), 0.0)
    ssp = lambda z: jax.nn.softplus(z) - jnp.log(2.0)  # noqa: E731
    h = x @ params["embed"]
    for block in params["blocks"]:
        filters = mlp(block["filter"], rbf, ssp) * envelope[:, None]
        m = ops.gather_edges(graph, ops.scatter_src(graph, h @ block["in"]) * filters)
        h = h + mlp(block["out"], m, ssp)
    return mlp(params["head"], h, ssp)[:, 0]


def init_schnet():
    k = iter(jax.random.split(jax.random.key(3), 16))
    blocks = [
        {
            "filter": init_mlp(next(k), [8, H, H]),
            "in": jax.random.normal(next(k), (H, H)),
            "out": init_mlp(next(k), [H, H, H]),
        }
        for _ in range(2)
    ]
    return {"embed": jax.random.normal(next(k), (F, H)), "blocks": blocks, "head": init_mlp(next(k), [H, H, 1])}


def huber(prediction, target, delta=1.0):
    error = jnp.abs(prediction - target)
    quadratic = jnp.minimum(error, delta)
    return 0.5 * quadratic**2 + delta * (error - quadratic)


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(0)), paper, **case)


CASES = {
    "GatedGCN": _nnx(GatedGCN, "Bresson and Laurent, arXiv 2017", inputs=("edge_attr",)),
    "DGCNN": Outside(lambda: (dgcnn, init_dgcnn()), "Wang et al., TOG 2019"),
    "GINE": Outside(GINE, "Hu et al., ICLR 2020", inputs=("edge_attr",)),
    "PNA": _nnx(PNA, "Corso et al., NeurIPS 2020", inputs=("edge_attr",)),
    "R-GCN": Outside(RGCN, "Schlichtkrull et al., ESWC 2018", inputs=("edge_type",)),
    "CompGCN": Outside(lambda: (compgcn, init_compgcn()), "Vashishth et al., ICLR 2020", inputs=("edge_type",)),
    "MPNN": Outside(MPNN, "Gilmer et al., ICML 2017", inputs=("edge_attr",)),
    "SchNet": Outside(
        lambda: (schnet, init_schnet()), "Schütt et al., NeurIPS 2017", inputs=("pos",), labels="value", loss=huber
    ),
}
