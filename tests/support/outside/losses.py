"""Losses of one's own: reweighted, robust, self-supervised, distilled, of several tasks."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from dorylax import ops
from support.outside.case import C, F, H, Outside


class GCN(nn.Module):
    out: int = C

    @nn.compact
    def __call__(self, graph, x):
        h = nn.relu(ops.gather(graph, nn.Dense(H)(x), reduce="mean") + nn.Dense(H)(x))
        return ops.gather(graph, nn.Dense(self.out)(h), reduce="mean") + nn.Dense(self.out)(h)


def class_balanced_loss(logits, labels, beta=0.9):
    """Weights by the effective number of samples of each class, counted over the labels there are."""
    onehot = jax.nn.one_hot(labels, C)
    counts = onehot.sum(axis=0)
    weights = (1 - beta) / (1 - beta**counts)
    weights = weights / weights.sum() * C
    return (weights * onehot).sum(1) * optax.softmax_cross_entropy(logits, onehot)


def bincount_loss(logits, labels):
    """As scikit-learn's class_weight="balanced"."""
    valid = labels >= 0
    counts = jnp.bincount(jnp.where(valid, labels, C), length=C + 1)[:C]
    weights = valid.sum() / (C * jnp.maximum(counts, 1))
    labels = jnp.where(valid, labels, 0)
    return weights[labels] * optax.softmax_cross_entropy_with_integer_labels(logits, labels)


class MultiTask(nnx.Module):
    """A shared trunk, a head for classes and one for a number, and a learnt uncertainty of each task."""

    def __init__(self, *, rngs):
        self.trunk = nnx.Linear(F, H, rngs=rngs)
        self.heads = nnx.Dict(level=nnx.Linear(H, C, rngs=rngs), value=nnx.Linear(H, 1, rngs=rngs))
        self.log_var = nnx.Param(jnp.zeros(2))

    def __call__(self, graph, x):
        h = nnx.relu(ops.gather(graph, self.trunk(x), reduce="mean") + self.trunk(x))
        out = {name: head(h) for name, head in self.heads.items()}
        return {**out, "log_var": jnp.broadcast_to(self.log_var[...], (x.shape[0], 2))}


def multi_task_loss(out, targets):
    level = jnp.clip(targets[:, 0].astype(jnp.int32), 0, C - 1)
    ce = optax.softmax_cross_entropy_with_integer_labels(out["level"], level)
    mse = optax.l2_loss(out["value"][:, 0], targets[:, 1])
    return (jnp.exp(-out["log_var"]) * jnp.stack([ce, mse], -1) + out["log_var"]).sum(-1)


def gaussian_nll(output, target):
    mean, log_var = output[:, 0], jnp.clip(output[:, 1], -10, 10)
    return 0.5 * (log_var + (target - mean) ** 2 * jnp.exp(-log_var))


class Distilled(nnx.Module):
    """The teacher's logits come in as an input, and go on to the loss."""

    def __init__(self, *, rngs):
        self.net = nnx.Sequential(nnx.Linear(2 * F, H, rngs=rngs), nnx.relu, nnx.Linear(H, C, rngs=rngs))

    def __call__(self, graph, x, teacher):
        student = self.net(jnp.concatenate([x, ops.gather(graph, x, reduce="mean")], -1))
        return student, jax.lax.stop_gradient(teacher)


def distillation_loss(output, labels, temperature=2.0, alpha=0.3):
    student, teacher = output
    soft = jax.nn.softmax(teacher / temperature)
    kl = optax.kl_divergence(jax.nn.log_softmax(student / temperature), soft)
    hard = optax.softmax_cross_entropy_with_integer_labels(student, jnp.maximum(labels, 0))
    return alpha * hard + (1 - alpha) * temperature**2 * kl


class BGRL(nnx.Module):
    """An online encoder predicts what a slowly moving copy of itself makes of another view."""

    def __init__(self, decay=0.9, *, rngs):
        self.online, self.predictor = nnx.Linear(F, H, rngs=rngs), nnx.Linear(H, H, rngs=rngs)
        self.target = nnx.Variable(self.online.kernel[...])
        self.head = nnx.Linear(H, C, rngs=rngs)
        self.drop1, self.drop2 = nnx.Dropout(0.2, rngs=rngs), nnx.Dropout(0.4, rngs=rngs)
        self.decay = decay

    def encode(self, graph, kernel, x):
        return jnp.tanh(ops.gather(graph, x @ kernel, reduce="mean") + x @ kernel)

    def __call__(self, graph, x):
        h = self.encode(graph, self.online.kernel[...], self.drop1(x))
        t = self.encode(graph, self.target[...], self.drop2(x))
        new = self.decay * self.target[...] + (1 - self.decay) * self.online.kernel[...]
        self.target[...] = jax.lax.stop_gradient(new)
        return self.head(h), self.predictor(h), jax.lax.stop_gradient(t)


def bgrl_loss(output, labels):
    logits, prediction, target = output
    cos = optax.cosine_similarity(prediction, target, epsilon=1e-3)
    return 2 - 2 * cos + optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))


class TwoViews(nn.Module):
    """Two views by dropped features, through one encoder."""

    @nn.compact
    def __call__(self, graph, x, train: bool = False):
        dense, head, drop = nn.Dense(H), nn.Dense(C), nn.Dropout(0.3, deterministic=not train)
        z1, z2 = (jnp.tanh(ops.gather(graph, dense(drop(x)), reduce="mean") + dense(x)) for _ in range(2))
        return head(z1), z1, z2


def barlow_loss(output, labels, lam=0.05):
    """Cross-correlation of two views over all vertices, near the identity, beside every vertex's cross-entropy."""
    logits, z1, z2 = output
    z1, z2 = ((z - z.mean(0)) / (z.std(0) + 1e-5) for z in (z1, z2))
    c = z1.T @ z2 / z1.shape[0]
    on = jnp.square(jnp.diagonal(c) - 1).sum()
    off = jnp.square(c).sum() - jnp.square(jnp.diagonal(c)).sum()
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0)) + on + lam * off


def grand(params, graph, x, *, key, train=False, samples=2):
    """Random propagation: whole vertices are dropped, and predictions of several draws are to agree."""
    outs = []
    for k in jax.random.split(key, samples):
        keep = jax.random.bernoulli(k, 0.5, (x.shape[0], 1)) / 0.5 if train else 1.0
        h = hop = x * keep
        for _ in range(2):
            hop = ops.gather(graph, hop, reduce="mean")
            h = h + hop
        outs.append(jax.nn.relu(h / 3 @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"])
    return outs


def grand_loss(outs, labels, temperature=0.5, lam=1.0):
    ps = [jax.nn.softmax(out) for out in outs]
    mean = sum(ps) / len(ps)
    sharp = mean ** (1 / temperature)
    sharp = jax.lax.stop_gradient(sharp / sharp.sum(axis=1, keepdims=True))
    consistency = sum(((p - sharp) ** 2).sum(1) for p in ps) / len(ps)
    nll = sum(optax.softmax_cross_entropy_with_integer_labels(out, jnp.clip(labels, 0)) for out in outs) / len(outs)
    return nll + lam * consistency


def grand_params():
    k1, k2 = jax.random.split(jax.random.key(5))
    return {
        "w1": jax.random.normal(k1, (F, H)),
        "b1": jnp.zeros(H),
        "w2": jax.random.normal(k2, (H, C)),
        "b2": jnp.zeros(C),
    }


class DGI(nn.Module):
    """Corruption shuffles the rows of features."""

    @nn.compact
    def __call__(self, graph, x):
        dense = nn.Dense(H)
        corrupt = jax.random.permutation(jax.random.key(0), x)
        positive, negative = (nn.relu(ops.gather(graph, dense(h), reduce="mean")) for h in (x, corrupt))
        summary = nn.sigmoid(positive.mean(0))
        return nn.Dense(C)(positive) + ((positive - negative) @ summary)[:, None]


def _nnx(cls, paper, **case):
    return Outside(lambda: cls(rngs=nnx.Rngs(params=0, dropout=1)), paper, **case)


CASES = {
    "class-balanced loss": Outside(GCN, "Cui et al., CVPR 2019", loss=class_balanced_loss),
    "balanced by bincount": Outside(GCN, "King and Zeng, Political Analysis 2001", loss=bincount_loss),
    "multi-task": _nnx(MultiTask, "Kendall et al., CVPR 2018", labels="class and value", loss=multi_task_loss),
    "Gaussian likelihood": Outside(lambda: GCN(2), "Nix and Weigend, ICNN 1994", labels="value", loss=gaussian_nll),
    "distillation": _nnx(Distilled, "Zhang et al., ICLR 2022", inputs=("teacher",), loss=distillation_loss),
    "BGRL": _nnx(BGRL, "Thakoor et al., ICLR 2022", loss=bgrl_loss),
    "Graph Barlow Twins": Outside(TwoViews, "Bielak et al., KBS 2022", loss=barlow_loss),
    "GRAND": Outside(lambda: (grand, grand_params()), "Feng et al., NeurIPS 2020", loss=grand_loss),
    "DGI": Outside(DGI, "Veličković et al., ICLR 2019", refused="indexing of the vertex axis"),
}
