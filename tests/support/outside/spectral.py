"""Polynomial filters, propagation and label propagation, as plain functions of a dict of parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dorylax import ops
from support.outside.case import C, F, H, Outside


def normal(*shapes, seed=0, **named):
    """Parameters by name."""
    keys = jax.random.split(jax.random.key(seed), len(named))
    return {name: jax.random.normal(k, s) * (s[0] ** -0.5 if s else 1) for k, (name, s) in zip(keys, named.items())}  # noqa: B905


def gcn_norm(graph, x, add_self_loops=True):
    """x ↦ D^-1/2 (A + I) D^-1/2 x."""
    deg = ops.in_degrees(graph, x.dtype) + (1 if add_self_loops else 0)
    dis = jnp.where(deg > 0, jax.lax.rsqrt(jnp.where(deg > 0, deg, 1)), 0.0)[:, None]

    def propagate(h):
        out = ops.gather(graph, dis * h)
        return dis * (out + dis * h) if add_self_loops else dis * out

    return propagate


def dropout(key, x, rate):
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def appnp(params, graph, x, *, key, train=False, alpha=0.1, num_iters=4):
    k1, k2 = jax.random.split(key)
    h = dropout(k1, x, 0.3) if train else x
    h = jax.nn.relu(h @ params["w1"] + params["b1"])
    h = dropout(k2, h, 0.3) if train else h
    z = h = h @ params["w2"] + params["b2"]
    adj = gcn_norm(graph, x)
    return jax.lax.fori_loop(0, num_iters, lambda _, z: (1 - alpha) * adj(z) + alpha * h, z)


def chebnet(params, graph, x):
    adj = gcn_norm(graph, x, add_self_loops=False)
    lap = lambda h: -adj(h)  # noqa: E731  2 L / λ_max - I with λ_max = 2
    for i, kernel in enumerate(params["layers"]):
        t = [x, lap(x)]
        while len(t) < len(kernel):
            t.append(2 * lap(t[-1]) - t[-2])
        x = sum(tk @ w for tk, w in zip(t, kernel, strict=True))
        x = jax.nn.relu(x) if i == 0 else x
    return x


def init_chebnet(order=3):
    keys = jax.random.split(jax.random.key(1), 2)
    sizes = [(F, H), (H, C)]
    return {"layers": [jax.random.normal(k, (order, *s)) / s[0] for k, s in zip(keys, sizes, strict=True)]}


def arma(params, graph, x, stacks=2, layers=2):
    """Parallel stacks, weights shared between their layers but the first; `vmap` over stacks."""
    adj = gcn_norm(graph, x, add_self_loops=False)

    def stack(p):
        h = x
        for t in range(layers):
            h = jax.nn.relu(adj(h @ (p["init"] if t == 0 else p["w"])) + x @ p["v"] + p["b"])
        return h

    return jnp.mean(jax.vmap(stack)(params["stacks"]), axis=0) @ params["out"]


def init_arma(stacks=2):
    k = jax.random.split(jax.random.key(2), 4)
    shapes = {"init": (stacks, F, H), "w": (stacks, H, H), "v": (stacks, F, H), "b": (stacks, H)}
    return {
        "stacks": {n: jax.random.normal(k[i % 3], s) / 2 for i, (n, s) in enumerate(shapes.items())},
        "out": jax.random.normal(k[3], (H, C)),
    }


def sign(params, graph, x, r=3):
    adj = gcn_norm(graph, x)
    hops = [x]
    for _ in range(r):
        hops.append(adj(hops[-1]))
    slope = params["prelu"]
    z = [jnp.where(z > 0, z, slope * z) for z in (h @ w for h, w in zip(hops, params["theta"], strict=True))]
    return jnp.concatenate(z, axis=1) @ params["omega"]


def linkx(params, graph, x):
    """Rows of the adjacency matrix as features: A W_A has a row of parameters for every vertex."""
    h_a = ops.gather(graph, params["w_a"])
    h_x = x @ params["w_x"]
    h = jax.nn.relu(jnp.concatenate([h_a, h_x], 1) @ params["w"] + h_a + h_x)
    return h @ params["out"]


def linkx_ids(params, graph, x):
    """The same, its table read by vertex ids."""
    h_a = ops.gather(graph, jnp.take(params["w_a"], ops.vertex_ids(graph), axis=0))
    h_x = x @ params["w_x"]
    h = jax.nn.relu(jnp.concatenate([h_a, h_x], 1) @ params["w"] + h_a + h_x)
    return h @ params["out"]


def correct_and_smooth(params, graph, x, known, *, alpha=0.8, layers=3):
    """Errors on known labels are spread, then labels are smoothed; everything is differentiated."""
    adj = gcn_norm(graph, x, add_self_loops=False)
    y_soft = jax.nn.softmax(jax.nn.relu(x @ params["w1"]) @ params["w2"])
    mask = (known >= 0)[:, None]
    y_true = jax.nn.one_hot(known, C, dtype=x.dtype)
    error = jnp.where(mask, y_true - y_soft, 0)

    def spread(z, start):
        for _ in range(layers):
            z = alpha * adj(z) + (1 - alpha) * start
        return z

    smoothed = spread(error, error)
    sigma = jnp.abs(error).sum() / jnp.maximum(mask.sum(), 1)
    scale = sigma / jnp.maximum(jnp.abs(smoothed).sum(axis=1, keepdims=True), 1e-3)
    y_soft = y_soft + jnp.where(scale > 1000, 1.0, scale) * smoothed
    y_soft = jnp.where(mask, y_true, y_soft)
    return jnp.log(jnp.clip(spread(y_soft, y_soft), 1e-4, 10))


def label_usage(params, graph, x, known, key):
    """Bag of tricks: half of the known labels of each epoch are inputs, drawn anew."""
    use = jax.random.uniform(key, known.shape) < 0.5
    onehot = jnp.where((use & (known >= 0))[:, None], jax.nn.one_hot(known, C), 0.0)
    h = jnp.concatenate([x, onehot.astype(x.dtype)], axis=-1)
    adj = gcn_norm(graph, x)
    return adj(jax.nn.relu(adj(h @ params["w1"])) @ params["w2"])


def gcnii(params, graph, x, alpha=0.1, lamda=0.5):
    adj = gcn_norm(graph, x)
    h0 = jax.nn.relu(x @ params["enter"])

    def layer(h, inputs):
        l, w = inputs  # noqa: E741
        theta = jnp.log(lamda / l + 1)
        support = (1 - alpha) * adj(h) + alpha * h0
        return jax.nn.relu(theta * (support @ w) + (1 - theta) * support), None

    depth = params["layers"].shape[0]
    h, _ = jax.lax.scan(layer, h0, (jnp.arange(1, depth + 1, dtype=x.dtype), params["layers"]))
    return h @ params["leave"]


def grand_ode(params, graph, x, steps=3, dt=0.5):
    """Graph neural diffusion by the classical Runge-Kutta method."""
    z = x @ params["enter"]
    k, q = z @ params["k"], z @ params["q"]
    att = ops.edge_softmax(graph, (ops.scatter_src(graph, k) * ops.scatter_dst(graph, q)).sum(-1))
    f = lambda z: ops.gather(graph, z, att) - z  # noqa: E731

    def rk4(z, _):
        k1 = f(z)
        k2 = f(z + dt / 2 * k1)
        k3 = f(z + dt / 2 * k2)
        k4 = f(z + dt * k3)
        return z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(rk4, z, length=steps)[0] @ params["leave"]


def ignn(params, graph, x, tol=1e-6):
    """Implicit: iterated until nothing moves any more."""
    adj = gcn_norm(graph, x)
    b = x @ params["b"]
    w = 0.5 * params["w"] / jnp.linalg.norm(params["w"])
    update = lambda z: jax.nn.relu(adj(z @ w) + b)  # noqa: E731
    z = jax.lax.while_loop(lambda s: jnp.max(jnp.abs(s[0] - s[1])) > tol, lambda s: (update(s[0]), s[0]), (b, b + 1))[0]
    return update(z) @ params["out"]


def _function(function, paper, params=None, **case):
    shapes = params or {"w1": (F, H), "w2": (H, C)}
    return Outside(lambda: (function, shapes() if callable(shapes) else normal(**shapes)), paper, **case)


MLP = {"w1": (F, H), "b1": (H,), "w2": (H, C), "b2": (C,)}
CASES = {
    "APPNP": _function(appnp, "Gasteiger et al., ICLR 2019", MLP),
    "ChebNet": _function(chebnet, "Defferrard et al., NeurIPS 2016", init_chebnet),
    "ARMA": _function(arma, "Bianchi et al., TPAMI 2021", init_arma),
    "SIGN": _function(sign, "Frasca et al., arXiv 2020", {"theta": (4, F, H), "omega": (4 * H, C), "prelu": ()}),
    "LINKX": _function(
        linkx,
        "Lim et al., NeurIPS 2021",
        {"w_a": (20, H), "w_x": (F, H), "w": (2 * H, H), "out": (H, C)},
        refused="the parameter w_a [20, 4] has a row for each vertex",
    ),
    "LINKX by ids": _function(
        linkx_ids, "Lim et al., NeurIPS 2021", {"w_a": (160, H), "w_x": (F, H), "w": (2 * H, H), "out": (H, C)}
    ),
    "Correct and Smooth": _function(correct_and_smooth, "Huang et al., ICLR 2021", inputs=("known",)),
    "label usage": _function(
        label_usage, "Wang et al., arXiv 2021", {"w1": (F + C, H), "w2": (H, C)}, inputs=("known",)
    ),
    "GCNII": _function(gcnii, "Chen et al., ICML 2020", {"enter": (F, H), "layers": (3, H, H), "leave": (H, C)}),
    "GRAND diffusion": _function(
        grand_ode, "Chamberlain et al., ICML 2021", {"enter": (F, H), "k": (H, H), "q": (H, H), "leave": (H, C)}
    ),
    "IGNN": _function(ignn, "Gu et al., NeurIPS 2020", {"b": (F, H), "w": (H, H), "out": (H, C)}, refused="while_loop"),
}
