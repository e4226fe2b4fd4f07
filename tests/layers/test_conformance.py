"""One suite over all layers and models; it finds the models of the registry by itself.

Compiling is nearly all of the time here: programs are compiled once per case and shared by the tests, and the rest is
NumPy where possible.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx
from jax.test_util import check_grads

from dorylax.graph.compressed import Adjacency
from dorylax.graph.graph import Graph
from dorylax.graph.rows import BySlot
from dorylax.layers import (
    APPNP,
    GAT,
    GCN,
    GCNII,
    GIN,
    MLP,
    MPNN,
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
from dorylax.layers import MODELS as REGISTRY
from dorylax.ops import edge_ids

V, IN, OUT = 12, 5, 3
EDGE_FEATURES = 2
ISOLATED = np.array([0, 7])  # of messy_graph


class FromFirstRows(nnx.Module):
    """GCN2Conv as the suite calls layers: its first rows are made of the features."""

    def __init__(self, **options: Any) -> None:
        self.conv = GCN2Conv(IN, **options)

    def __call__(self, graph: Graph, x: jax.Array) -> jax.Array:
        return self.conv(graph, x, x[:, ::-1])


class WithEdgeFeatures(nnx.Module):
    """A layer or model with edge features as the suite calls it: they are made of the edges' ids."""

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:
        self.inner = make(edge_features=EDGE_FEATURES, **options)

    def __call__(self, graph: Graph, x: jax.Array) -> jax.Array:
        ids = edge_ids(graph).astype(jnp.float32)
        return self.inner(graph, x, jnp.sin(ids[:, None] * jnp.arange(1.0, EDGE_FEATURES + 1)))


def without_parameters(**options: Any) -> APPNPConv:
    options.pop("param_dtype", None)
    return APPNPConv(num_propagations=2, edge_dropout=0.5, **options)


CONVS: dict[str, Callable[..., Any]] = {
    "GCNConv": partial(GCNConv, IN, OUT),
    "GATConv concat": partial(GATConv, IN, OUT, heads=2, attention_dropout=0.5),
    "GATConv mean": partial(GATConv, IN, OUT, heads=4, concat=False, attention_dropout=0.5),
    "SAGEConv mean": partial(SAGEConv, IN, OUT),
    "SAGEConv sum": partial(SAGEConv, IN, OUT, aggregation="sum"),
    "SAGEConv max": partial(SAGEConv, IN, OUT, aggregation="max"),
    "GINConv": partial(GINConv, IN, OUT, epsilon=0.3),
    "GATv2Conv concat": partial(GATv2Conv, IN, OUT, heads=2, attention_dropout=0.5),
    "GATv2Conv shared": partial(GATv2Conv, IN, OUT, heads=2, concat=False, share_weights=True, attention_dropout=0.5),
    "SGConv": partial(SGConv, IN, OUT),
    "APPNPConv": without_parameters,
    "GCN2Conv": FromFirstRows,
    "GCN2Conv separate": partial(FromFirstRows, layer=3, share_weights=False),
    "MPNNConv mean": partial(MPNNConv, IN, OUT, aggregation="mean"),
    "MPNNConv edges max": partial(WithEdgeFeatures, partial(MPNNConv, IN, OUT, hidden_features=4, aggregation="max")),
    "GINConv ε": partial(GINConv, IN, OUT, hidden_features=4, train_epsilon=True, norm="layer"),
}


def published(name: str) -> Callable[..., Any]:
    """The model of the registry with its published options, but small."""
    spec = REGISTRY[name]
    options = {key.removeprefix("model."): value for key, value in spec.recipe.items() if key.startswith("model.")}
    small = {"hidden_features": 4, "num_layers": 2, "heads": 2, "output_heads": 3, "num_propagations": 2}
    options |= {key: value for key, value in small.items() if key in options}
    return partial(spec.make, in_features=IN, out_features=OUT, **options)


_DEEP = {"num_layers": 3, "residual": True, "dropout": 0.3}
MODELS: dict[str, Callable[..., Any]] = {
    **{name: published(name) for name in REGISTRY},
    "GCN deep": partial(GCN, IN, 4, OUT, norm="layer", **_DEEP),
    "GAT deep": partial(GAT, IN, 2, OUT, heads=2, norm="rms", **_DEEP),
    "GraphSAGE deep": partial(GraphSAGE, IN, 4, OUT, aggregation="max", norm="layer", **_DEEP),
    "GIN deep": partial(GIN, IN, 4, OUT, train_epsilon=True, norm="rms", **_DEEP),
    "MLP deep": partial(MLP, IN, 4, OUT, norm="layer", **_DEEP),
    "GATv2 deep": partial(GATv2, IN, 2, OUT, heads=2, jk="max", norm="layer", **_DEEP),
    "APPNP deep": partial(APPNP, IN, 4, OUT, num_propagations=3, norm="layer", **_DEEP),
    "GCNII deep": partial(GCNII, IN, 4, OUT, num_layers=3),
    "MPNN edges": partial(WithEdgeFeatures, partial(MPNN, IN, 4, OUT, jk="concat", norm="rms")),
    "GCN jk deep": partial(GCN, IN, 4, OUT, jk="concat", **_DEEP),
    "one layer": partial(GCN, IN, 4, OUT, num_layers=1, norm="layer"),
}
ALL = CONVS | MODELS
_WIDTH_FREE = {"APPNPConv"}
everything = pytest.mark.parametrize("name", ALL)
either_mode = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])


def features(dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(V, IN)).astype(dtype)


@functools.cache
def split(name: str, training: bool) -> tuple[Any, nnx.State]:
    """Definition and state of the case's model, the same state in both modes."""
    model = ALL[name](rngs=nnx.Rngs(0)) if training else nnx.merge(*split(name, True))
    model.train() if training else model.eval()
    return nnx.split(model)


def pure(name: str, training: bool) -> tuple[Callable[..., jax.Array], nnx.State]:
    """`(call, state)`: `call(state, graph, x)` is a pure function, with the randomness that is in the state."""
    definition, state = split(name, training)
    return lambda state, graph, x: nnx.merge(definition, state, copy=True)(graph, x), state


@functools.cache
def compiled(name: str, training: bool) -> tuple[Callable[..., np.ndarray], nnx.State]:
    """As `pure`, jitted, and giving NumPy arrays."""
    call, state = pure(name, training)
    jitted = jax.jit(call)
    return lambda *arguments: np.asarray(jitted(*arguments)), state


def later(state: nnx.State) -> nnx.State:
    """The state with other randomness."""
    return jax.tree.map(lambda leaf: leaf + np.uint32(5) if leaf.dtype == jnp.uint32 else leaf, state)


@everything
@either_mode
def test_permutation_equivariance(
    name: str, training: bool, messy_graph: Graph, permute: Callable[[Graph, np.ndarray], Graph]
) -> None:
    """In training too: dropout belongs to the vertex, edge or loop, wherever it lies."""
    call, state = compiled(name, training)
    order = np.random.default_rng(2).permutation(V)
    expected = call(state, messy_graph, features())[order]
    np.testing.assert_allclose(call(state, permute(messy_graph, order), features()[order]), expected, atol=1e-5)


@everything
def test_isolated_vertices_are_on_their_own(name: str, messy_graph: Graph) -> None:
    """Their rows are finite, and depend on their own features, and on nobody else's; nor does anybody on theirs."""
    call, state = compiled(name, False)
    isolated = np.isin(np.arange(V), ISOLATED)[:, None]
    y = call(state, messy_graph, features())
    assert np.isfinite(y).all()
    others_changed = call(state, messy_graph, np.where(isolated, features(), 1 - features()))
    np.testing.assert_array_equal(others_changed[ISOLATED], y[ISOLATED])
    they_changed = call(state, messy_graph, np.where(isolated, 1 - features(), features()))
    np.testing.assert_array_equal(np.delete(they_changed, ISOLATED, 0), np.delete(y, ISOLATED, 0))
    assert np.any(they_changed[ISOLATED] != y[ISOLATED], axis=1).all()


@pytest.mark.parametrize("name", CONVS)
def test_a_graph_without_edges_is_all_isolated_vertices(
    name: str, messy_graph: Graph, make_graph: Callable[..., Graph]
) -> None:
    call, state = compiled(name, False)
    alone = call(state, make_graph([], [], 2), features()[ISOLATED])
    np.testing.assert_allclose(alone, call(state, messy_graph, features())[ISOLATED], atol=1e-6)


@everything
def test_jit_equals_eager(name: str, messy_graph: Graph) -> None:
    call, state = compiled(name, True)
    eager = nnx.merge(split(name, True)[0], state, copy=True)(messy_graph, jnp.asarray(features()))
    np.testing.assert_allclose(call(state, messy_graph, features()), eager, rtol=1e-5, atol=1e-5)


def differentiated() -> list[Any]:
    """All layers, and models with each way of joining, normalising and skipping layers; deep models are the dearest here."""
    few = ("GraphSAGE deep", "GIN deep", "GCN jk deep")
    others = [pytest.param(name, marks=pytest.mark.exhaustive) for name in MODELS if "deep" in name and name not in few]
    return [*CONVS, *few, *others]


@pytest.mark.parametrize("name", differentiated())
def test_gradients(name: str, messy_graph: Graph, x64: None) -> None:
    """Of parameters and features, forward and reverse, in double precision; dropout on, its randomness held."""
    definition, state = split(name, True)
    parameters, rest = nnx.split_state(state, nnx.Param, ...)
    leaves, tree = jax.tree.flatten((parameters, features()))
    ends = np.cumsum([leaf.size for leaf in leaves])
    # One vector, of one length for all cases: what check_grads does by single operations is then compiled once.
    point = np.zeros(1000)
    point[: ends[-1]] = np.concatenate([np.ravel(leaf) for leaf in leaves])
    # Biases start at zero, where dropped and isolated rows would sit on the kink of ReLU.
    point += 0.1 * np.random.default_rng(3).normal(size=point.shape)

    @jax.jit
    def call(vector: jax.Array) -> jax.Array:
        parts = [
            vector[end - math.prod(leaf.shape) : end].reshape(leaf.shape)
            for end, leaf in zip(ends, leaves, strict=True)
        ]
        parameters, x = jax.tree.unflatten(tree, parts)
        return nnx.merge(definition, parameters, rest, copy=True)(messy_graph, x)

    check_grads(call, (point,), order=1, modes=("fwd", "rev"), eps=1e-6, atol=1e-6, rtol=1e-6)


@everything
def test_every_parameter_matters(name: str, messy_graph: Graph) -> None:
    call, state = compiled(name, False)
    y = call(state, messy_graph, features())
    parameters, rest = nnx.split_state(state, nnx.Param, ...)
    leaves, tree = jax.tree.flatten(parameters)
    rng = np.random.default_rng(4)
    for k, (path, _) in enumerate(nnx.to_flat_state(parameters)):
        noise = rng.normal(size=leaves[k].shape).astype(np.float32)
        changed = jax.tree.unflatten(tree, [*leaves[:k], np.asarray(leaves[k]) + noise, *leaves[k + 1 :]])
        assert np.any(call(nnx.merge_state(changed, rest), messy_graph, features()) != y), path


@everything
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64], ids=["bfloat16", "float32", "float64"])
def test_dtype_follows_the_input(name: str, dtype: Any, messy_graph: Graph, x64: None) -> None:
    call, state = pure(name, True)
    assert jax.eval_shape(call, state, messy_graph, features(dtype)).dtype == dtype


@everything
def test_dtype_option_overrides_the_input(name: str, messy_graph: Graph) -> None:
    def call(x: jax.Array) -> tuple[nnx.State, jax.Array]:
        model = ALL[name](rngs=nnx.Rngs(0), dtype=jnp.bfloat16, param_dtype=jnp.float16)
        return nnx.state(model, nnx.Param), model(messy_graph, x)

    parameters, y = jax.eval_shape(call, features())
    assert {p.dtype for p in jax.tree.leaves(parameters)} <= {jnp.dtype(jnp.float16)}
    assert y.dtype == jnp.bfloat16


@pytest.mark.parametrize("name", CONVS)
def test_half_precision_is_near_single(name: str, messy_graph: Graph) -> None:
    call, state = compiled(name, False)
    exact = call(state, messy_graph, features())
    half = call(state, messy_graph, features(jnp.bfloat16)).astype(np.float32)
    np.testing.assert_allclose(half, exact, atol=0.03 * np.abs(exact).max())


@pytest.fixture
def unchecked_types() -> Iterator[None]:
    """Without run-time type checks, for which a symbol is no `int`."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@everything
def test_sizes_of_the_graph_may_be_symbols(name: str, unchecked_types: None) -> None:
    """As when a model is traced to be split: forward, and the gradients of parameters and features."""
    n, e = jax.export.symbolic_shape("n, e")
    offsets, entries = jax.ShapeDtypeStruct((n + 1, 2), jnp.uint32), jax.ShapeDtypeStruct((e,), jnp.int32)
    ids = {"vertex_ids": jax.ShapeDtypeStruct((n,), jnp.int32), "edge_ids": entries, "placed": BySlot()}
    graph = Graph(offsets, entries, outgoing=Adjacency(offsets, entries, entries), self_loops="some", **ids)
    definition, state = split(name, True)
    parameters, rest = nnx.split_state(state, nnx.Param, ...)

    def loss(parameters: nnx.State, x: jax.Array, rest: nnx.State, graph: Graph) -> tuple[jax.Array, jax.Array]:
        y = nnx.merge(definition, parameters, rest, copy=True)(graph, x)
        return y.sum(), y

    x = jax.ShapeDtypeStruct((n, IN), jnp.float32)
    (_, y), (_, dx) = jax.eval_shape(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True), parameters, x, rest, graph)
    assert y.shape[0] == n
    assert dx.shape == x.shape


@everything
def test_randomness_is_that_of_the_state_and_only_in_training(name: str, messy_graph: Graph) -> None:
    """`nnx.RngState` alone decides which rows, edges and loops drop out."""
    for training in (False, True):
        call, state = compiled(name, training)
        first = call(state, messy_graph, features())
        np.testing.assert_array_equal(call(state, messy_graph, features()), first)
        random = training and bool(jax.tree.leaves(nnx.filter_state(state, nnx.RngCount)))
        assert random == bool(np.any(call(later(state), messy_graph, features()) != first))


@pytest.mark.parametrize("name", [name for name in ALL if name not in _WIDTH_FREE])
def test_wrong_width_is_refused(name: str, messy_graph: Graph) -> None:
    call, state = pure(name, True)
    with pytest.raises((ValueError, TypeError), match=r"12, ?6"):
        jax.eval_shape(call, state, messy_graph, jax.ShapeDtypeStruct((V, IN + 1), jnp.float32))
