from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import GAT, GIN, MLP, MPNN, GATv2, GraphSAGE
from dorylax.layers.model import JumpingKnowledge


def test_order_of_layer_norm_shortcut_and_activation(messy_graph: Graph, run: Any) -> None:
    """Written out for an MLP of three layers, widths 5, 4, 4, 3: the middle shortcut is the identity."""
    model = MLP(5, 4, 3, num_layers=3, norm="layer", residual=True, rngs=nnx.Rngs(0))
    model.eval()
    x = jax.random.normal(jax.random.key(0), (12, 5))
    (a, b, c), norms, (first, middle, last) = model.convs, model.skeleton.norms, model.skeleton.shortcuts
    assert middle.projection is None
    h = jax.nn.relu(norms[0](a(x)) + first.projection(x))
    h = jax.nn.relu(norms[1](b(h)) + h)
    np.testing.assert_allclose(run(model, messy_graph, x), c(h) + last.projection(h), atol=1e-5)


def test_jumping_knowledge_joins_what_follows_every_activation(messy_graph: Graph, run: Any) -> None:
    """Written out for an MLP of two layers, widths 5, 4, 4, and the output layer: both layers have norm and σ."""
    model = MLP(5, 4, 3, norm="layer", jk="concat", rngs=nnx.Rngs(0))
    model.eval()
    x = jax.random.normal(jax.random.key(0), (12, 5))
    (a, b), norms = model.convs, model.skeleton.norms
    first = jax.nn.relu(norms[0](a(x)))
    second = jax.nn.relu(norms[1](b(first)))
    expected = model.skeleton.jump.out(jnp.concatenate([first, second], axis=1))
    np.testing.assert_allclose(run(model, messy_graph, x), expected, atol=1e-5)
    assert len(model.skeleton.dropouts) == 3  # that of the joined rows too


def test_gat_widths_with_jumping_knowledge_are_all_hidden_ones() -> None:
    model = GAT(5, 4, 3, num_layers=3, heads=2, output_heads=6, jk="max", residual=True, rngs=nnx.Rngs(0))
    assert [conv.kernel.shape for conv in model.convs] == [(5, 8), (8, 8), (8, 8)]
    assert model.skeleton.jump.out.kernel.shape == (8, 3)


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [
        (GraphSAGE, "aggregation", "max"),
        (MPNN, "aggregation", "mean"),
        (MPNN, "edge_features", 2),
        (GAT, "attention_dropout", 0.2),
        (GATv2, "share_weights", True),
        (GIN, "train_epsilon", True),
    ],
)
def test_options_of_a_model_reach_each_layer(make: Any, option: str, value: Any) -> None:
    model = make(5, 4, 3, num_layers=3, **{option: value}, rngs=nnx.Rngs(0))
    assert [getattr(conv, option) for conv in model.convs] == [value] * 3
    assert getattr(make(5, 4, 3, rngs=nnx.Rngs(0)).convs[0], option) != value


def test_perceptrons_of_gin_have_the_width_and_the_norm_of_the_model() -> None:
    model = GIN(5, 4, 3, norm="layer", rngs=nnx.Rngs(0))
    assert [conv.hidden.kernel.shape for conv in model.convs] == [(5, 4), (4, 4)]
    assert [conv.norm.scale.shape for conv in model.convs] == [(4,), (4,)]


def test_dropout_falls_on_the_input_of_every_layer(messy_graph: Graph, run: Any) -> None:
    """With identity layers and positive rows, what survives L layers of rate 1/2 is worth 2^L."""
    model = MLP(4, 4, 4, num_layers=3, dropout=0.5, rngs=nnx.Rngs(0))
    for linear in model.convs:
        linear.kernel[...] = jnp.eye(4)
    kept = np.unique(np.concatenate([run(model, messy_graph, jnp.ones((12, 4))).ravel() for _ in range(5)]))
    np.testing.assert_array_equal(kept, [0, 8])


def test_gat_widths_count_heads() -> None:
    model = GAT(5, 4, 3, num_layers=3, heads=2, output_heads=6, norm="layer", residual=True, rngs=nnx.Rngs(0))
    assert [conv.kernel.shape for conv in model.convs] == [(5, 8), (8, 8), (8, 18)]
    assert [conv.total_features for conv in model.convs] == [8, 8, 3]
    assert [norm.scale.shape for norm in model.skeleton.norms] == [(8,), (8,)]
    shapes = [s.projection if s.projection is None else s.projection.kernel.shape for s in model.skeleton.shortcuts]
    assert shapes == [(5, 8), None, (8, 3)]


def test_dropouts_of_a_model_have_keys_of_their_own() -> None:
    model = GAT(5, 4, 3, rngs=nnx.Rngs(0))
    keys = [jax.random.key_data(key) for key in jax.tree.leaves(nnx.state(model, nnx.RngKey))]
    assert len(keys) == 4  # one before, one inside each of two layers
    assert all(np.any(a != b) for a, b in itertools.combinations(keys, 2))


def test_jumping_knowledge_by_hand() -> None:
    rows = [jnp.array([[1.0, 5.0]]), jnp.array([[3.0, 2.0]])]
    concat, largest = (JumpingKnowledge(kind, [2, 2], 3, rngs=nnx.Rngs(0)) for kind in ("concat", "max"))
    np.testing.assert_array_equal(concat.join(rows), [[1, 5, 3, 2]])
    np.testing.assert_array_equal(largest.join(rows), [[3, 5]])
    assert (concat.out.kernel.shape, largest.out.kernel.shape) == ((4, 3), (2, 3))


def test_ties_for_the_maximum_share_the_gradient_equally() -> None:
    jump = JumpingKnowledge("max", [1, 1, 1], 1, rngs=nnx.Rngs(0))
    gradients = jax.grad(lambda rows: jump.join(rows).sum())([jnp.ones((1, 1))] * 3)
    np.testing.assert_allclose(gradients, np.full((3, 1, 1), 1 / 3), rtol=1e-6)


def test_widths_may_differ_only_where_they_are_concatenated() -> None:
    assert JumpingKnowledge("concat", [2, 5], 3, rngs=nnx.Rngs(0)).out.kernel.shape == (7, 3)
    with pytest.raises(ValueError, match=r"jk max needs layers of one width, got \[2, 5\]"):
        JumpingKnowledge("max", [2, 5], 3, rngs=nnx.Rngs(0))
