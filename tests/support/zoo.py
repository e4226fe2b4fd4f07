"""Every layer and model of the package, and models as users write them, ready to be compared with the oracle."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from dorylax import ops
from dorylax.layers import (
    APPNP,
    GAT,
    GCN,
    GCNII,
    GIN,
    MLP,
    MPNN,
    SGC,
    APPNPConv,
    GATConv,
    GATv2,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GINConv,
    GraphSAGE,
    MPNNConv,
    SAGEConv,
    SGConv,
)
from dorylax.program.model.base import ModelParts
from dorylax.program.model.kinds import take_apart
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.spec import DataSpec, RowSpec
from support.graphs import messy_graph
from support.linen_models import LinenGAT, LinenGCN, LinenGIN, LinenSAGE

V, F, D, C = 20, 5, 2, 3
SPACES = {"x": ("vertex", (F,)), "edges": ("edge", (D,)), "weight": ("edge", ()), "norm": ("vertex", (1,))}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and what it is called with besides the graph.

    Attributes:
        make: `make(dtype)` gives the model, or `(function, parameters)`.
        inputs: names of `SPACES`.
    """

    make: Callable[[Any], Any]
    inputs: tuple[str, ...] = ("x",)


def _nnx(kind: Callable[..., Any], *widths: int, inputs: tuple[str, ...] = ("x",), **options: Any) -> Case:
    return Case(lambda dtype: kind(*widths, **options, param_dtype=dtype, rngs=nnx.Rngs(1)), inputs)


def _linen(module: linen.Module) -> Case:
    return Case(lambda dtype: module)


class Wrapped(nnx.Module):
    """A layer that takes what came before it twice, as GCNII's does."""

    def __init__(self, conv: Any) -> None:
        self.conv = conv

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.conv(graph, x, x)[:, :C]


class Sharing(nnx.Module):
    """One layer used three times, with skips over several gathers, flax's own dropout and a branch that nobody reads."""

    def __init__(self, dtype: Any) -> None:
        rngs = nnx.Rngs(2)
        self.first = nnx.Linear(F, 4, param_dtype=dtype, rngs=rngs)
        self.shared = nnx.Linear(4, 4, param_dtype=dtype, rngs=rngs)
        self.last = nnx.Linear(8, C, param_dtype=dtype, rngs=rngs)
        self.unused = nnx.Linear(4, 4, param_dtype=dtype, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, graph: Any, x: Any, norm: Any) -> Any:
        start = h = nnx.relu(self.first(x))
        for _ in range(3):
            self.unused(ops.gather(graph, h, reduce="mean"))
            h = h + jnp.tanh(ops.gather(graph, self.shared(self.dropout(h)) * norm))
        return self.last(jnp.concatenate([start, h], axis=-1))


class Jumping(nnx.Module):
    """A jumping-knowledge network made by hand: the largest of all layers' outputs, weights shared by `vmap` over heads."""

    def __init__(self, dtype: Any) -> None:
        rngs = nnx.Rngs(3)
        self.enter = nnx.Linear(F, 4, param_dtype=dtype, rngs=rngs)
        self.mix = nnx.Param(0.5 * jax.random.normal(rngs.params(), (2, 4, 4), dtype))
        self.leave = nnx.Linear(4, C, param_dtype=dtype, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        h = self.enter(x)
        seen = []
        for _ in range(2):
            heads = jax.vmap(lambda kernel, h=h: jax.nn.gelu(ops.gather(graph, h @ kernel, reduce="mean")))(
                self.mix[...]
            )
            h = heads.mean(axis=0)
            seen.append(h)
        return self.leave(jnp.stack(seen).max(axis=0))


def _appnp_by_hand(params: Any, graph: Any, x: Any, key: Any) -> Any:
    """APPNP as a scan, with dropout inside it, in a plain function."""
    start = jnp.tanh(x @ params["in"]) @ params["out"]
    degrees = jax.lax.rsqrt(ops.in_degrees(graph, x.dtype) + 1)[:, None]

    def step(h: Any, key: Any) -> tuple[Any, None]:
        keep = jax.random.bernoulli(key, 0.8, h.shape)
        h = jnp.where(keep, h / 0.8, 0)
        return 0.9 * degrees * ops.gather(graph, degrees * h) + 0.1 * start, None

    return jax.lax.scan(step, start, jax.random.split(key, 3))[0]


def _function(dtype: Any) -> Any:
    rng = np.random.default_rng(4)
    return _appnp_by_hand, {"in": rng.normal(size=(F, 4)).astype(dtype), "out": rng.normal(size=(4, C)).astype(dtype)}


_DEEP: dict[str, Any] = {"num_layers": 3, "residual": True, "dropout": 0.3}
LAYERS: dict[str, Case] = {
    "GCNConv": _nnx(GCNConv, F, C, inputs=("x", "weight")),
    "GATConv": _nnx(GATConv, F, C, heads=2, concat=False, attention_dropout=0.5),
    "GATv2Conv": _nnx(GATv2Conv, F, C, heads=2, concat=False, attention_dropout=0.5),
    "SAGEConv max": _nnx(SAGEConv, F, C, aggregation="max"),
    "GINConv": _nnx(GINConv, F, C, hidden_features=4, train_epsilon=True, norm="layer"),
    "SGConv": _nnx(SGConv, F, C, num_propagations=3, inputs=("x", "weight")),
    "APPNPConv": Case(lambda dtype: AfterLinear(APPNPConv(num_propagations=3, rngs=nnx.Rngs(1)), dtype)),
    "GCN2Conv": Case(lambda dtype: Wrapped(GCN2Conv(F, layer=2, param_dtype=dtype, rngs=nnx.Rngs(1)))),
    "MPNNConv": _nnx(MPNNConv, F, C, hidden_features=4, edge_features=D, aggregation="max", inputs=("x", "edges")),
}
MODELS: dict[str, Case] = {
    "GCN": _nnx(GCN, F, 4, C),
    "GCN without dropout": _nnx(GCN, F, 4, C, dropout=0.0),
    "GCN deep": _nnx(GCN, F, 4, C, norm="layer", **_DEEP),
    "GCN jumping": _nnx(GCN, F, 4, C, jk="concat", num_layers=3),
    "GAT": _nnx(GAT, F, 4, C, heads=2, output_heads=3),
    # With the recipe's dropout nearly all scores are biases, and the target's gradient is what rounding leaves of it.
    "GATv2": _nnx(GATv2, F, 4, C, heads=2, output_heads=1, dropout=0.2),
    "GraphSAGE": _nnx(GraphSAGE, F, 8, C),
    # Not jk="max": compiled as in tests, XLA may compute a row twice, rounded differently, and lose the maximum's gradient.
    "GraphSAGE deep": _nnx(GraphSAGE, F, 4, C, aggregation="max", norm="layer", jk="concat", **_DEEP),
    "GIN": _nnx(GIN, F, 8, C),
    "GIN deep": _nnx(GIN, F, 4, C, train_epsilon=True, norm="rms", **_DEEP),
    "MLP": _nnx(MLP, F, 4, C),
    "SGC": _nnx(SGC, F, C),
    "APPNP": _nnx(APPNP, F, 4, C, dropout=0.2),
    "GCNII": _nnx(GCNII, F, 4, C, num_layers=4, dropout=0.2),
    "MPNN": _nnx(MPNN, F, 4, C, aggregation="max", edge_features=D, dropout=0.2, inputs=("x", "edges")),
}
USERS: dict[str, Case] = {
    "sharing": Case(Sharing, ("x", "norm")),
    "jumping by hand": Case(Jumping),
    "APPNP as a scan": Case(_function),
    "linen GCN": _linen(LinenGCN((4, C))),
    "linen GAT": _linen(LinenGAT((4, C))),
    "linen SAGE": _linen(LinenSAGE((4, C), "max")),
    "linen GIN": _linen(LinenGIN((4, C))),
}
ALL = LAYERS | MODELS | USERS


class AfterLinear(nnx.Module):
    def __init__(self, conv: Any, dtype: Any) -> None:
        self.linear = nnx.Linear(F, C, param_dtype=dtype, rngs=nnx.Rngs(1))
        self.conv = conv

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.conv(graph, self.linear(x))


@functools.cache
def graph() -> Any:
    return messy_graph(V)


def spec_of(case: Case, dtype: str) -> DataSpec:
    inputs = tuple(RowSpec(*SPACES[name], dtype, name) for name in case.inputs)  # type: ignore[arg-type]
    return DataSpec(
        inputs,
        RowSpec("vertex", (), "int32", "labels"),
        self_loops=graph().self_loops,
        num_vertices=V,
        num_edges=int(graph().num_edges),
    )


def data_of(case: Case, dtype: str) -> RunData:
    rng = np.random.default_rng(5)
    rows = {"vertex": V, "edge": int(graph().num_edges)}
    arrays = []
    for name in case.inputs:
        space, shape = SPACES[name]
        drawn = rng.normal(size=(rows[space], *shape)).astype(dtype)
        arrays.append(np.abs(drawn) + np.asarray(0.1, dtype) if name in ("weight", "norm") else drawn)
    labels = rng.integers(0, C, V).astype(np.int32)
    mask = rng.random(V) < 0.7
    labels[~mask] = -1
    return RunData(graph(), tuple(arrays), labels, training_weights(mask, dtype))


def parts_of(case: Case, dtype: str) -> ModelParts:
    """The model with parameters that are not at any kink or zero, the same whenever it is made."""
    model = case.make(dtype)
    model, params = model if isinstance(model, tuple) else (model, None)
    example = data_of(case, dtype)
    parts = take_apart(model, example.graph, *example.inputs, params=params)
    rng = np.random.default_rng(6)

    def drawn(leaf: Any) -> Any:
        scale = 1 / np.sqrt(leaf.shape[0]) if leaf.ndim > 1 else 0.3
        base = 0.0 if isinstance(leaf, jax.ShapeDtypeStruct) else np.asarray(leaf)
        return jnp.asarray(base + scale * rng.normal(size=leaf.shape), leaf.dtype)

    def kept(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.full(leaf.shape, 0.5, dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else jnp.asarray(leaf, dtype)

    state = jax.tree.map(kept, parts.state)
    return dataclasses.replace(parts, params=jax.tree.map(drawn, parts.params), state=state)
