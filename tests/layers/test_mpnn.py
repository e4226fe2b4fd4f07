from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import MPNN, MPNNConv


@pytest.mark.parametrize(("aggregation", "message"), [("sum", 8.0), ("mean", 4.0), ("max", 6.0)])
def test_by_hand(aggregation: str, message: float, make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 2 ← 1, ψ = x_u + e/2 with e = 2, φ = 1000 x_v + m: messages 2 and 6."""
    conv = MPNNConv(1, 1, edge_features=1, aggregation=aggregation, rngs=nnx.Rngs(0))
    conv.message.kernel[...] = jnp.array([[0.0], [1.0], [0.5]])  # target, source, edge
    conv.update.kernel[...] = jnp.array([[1000.0], [1.0]])
    for linear in (conv.message_out, conv.update_out):
        linear.kernel[...] = jnp.ones((1, 1))
    y = run(conv, make_graph([0, 1], [2, 2], 3), jnp.array([[1.0], [5.0], [7.0]]), jnp.array([[2.0], [2.0]]))
    np.testing.assert_allclose(y[:, 0], [1000, 5000, 7000 + message])


def test_messages_tell_source_from_target(make_graph: Callable[..., Graph], run: Any) -> None:
    """0 → 1, ψ = 10 x_v + x_u, φ = m."""
    conv = MPNNConv(1, 1, rngs=nnx.Rngs(0))
    conv.message.kernel[...] = jnp.array([[10.0], [1.0]])
    conv.update.kernel[...] = jnp.array([[0.0], [1.0]])
    for linear in (conv.message_out, conv.update_out):
        linear.kernel[...] = jnp.ones((1, 1))
    np.testing.assert_allclose(run(conv, make_graph([0], [1], 2), jnp.array([[3.0], [5.0]])), [[0], [53]])


def test_no_concatenation_is_made(messy_graph: Graph) -> None:
    """The first product of ψ is done per vertex: no array has a row per edge and the columns of the three parts."""
    conv = MPNNConv(50, 3, edge_features=30, rngs=nnx.Rngs(0))
    E = messy_graph.num_edges
    definition, state = nnx.split(conv)
    jaxpr = jax.make_jaxpr(lambda state, x, e: nnx.merge(definition, state)(messy_graph, x, e))(
        state, jnp.ones((12, 50)), jnp.ones((E, 30))
    )
    shapes = [v.aval.shape for eqn in jaxpr.eqns for v in eqn.outvars]
    widths = [shape[-1] for shape in shapes if len(shape) > 1 and shape[0] == E]
    assert widths
    assert max(widths) == 3


@pytest.mark.parametrize(
    ("made_for", "given", "message"),
    [
        (2, None, r"made for 2 features per edge, \[E, 2\], and got None: pass such edges"),
        (
            0,
            (42, 3),
            r"made for 0 features per edge, \[E, 0\], and got \[42, 3\]: pass such edges \(None for 0 features\), or",
        ),
        (2, (42, 3), r"made for 2 features per edge, \[E, 2\], and got \[42, 3\]"),
        (2, (1, 2), "edges must have one row for each of the graph's .* edges"),
    ],
)
def test_wrong_edge_features_are_refused(
    made_for: int, given: tuple[int, ...] | None, message: str, messy_graph: Graph
) -> None:
    conv = MPNNConv(4, 3, edge_features=made_for, rngs=nnx.Rngs(0))
    edges = None if given is None else jnp.ones(given)
    with pytest.raises(ValueError, match=message):
        conv(messy_graph, jnp.ones((12, 4)), edges)


def test_every_layer_of_the_model_reads_the_edge_features(messy_graph: Graph, run: Any) -> None:
    model = MPNN(4, 5, 3, edge_features=2, rngs=nnx.Rngs(0))
    model.eval()
    x, edges = (jax.random.normal(jax.random.key(0), (n, w)) for n, w in ((12, 4), (messy_graph.num_edges, 2)))
    hidden = jax.nn.relu(run(model.convs[0], messy_graph, x, edges))
    np.testing.assert_allclose(
        run(model, messy_graph, x, edges), run(model.convs[1], messy_graph, hidden, edges), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("edge_features", [0, 3], ids=["no edge features", "edge features"])
@pytest.mark.parametrize("aggregation", ["sum", "mean", "max"])
def test_parity_with_pyg(aggregation: str, edge_features: int, messy_graph: Graph, peers: Any, run: Any) -> None:
    torch = peers.torch

    class Peer(peers.nn.MessagePassing):
        """The layer as PyG's users write it: perceptrons on concatenations."""

        def __init__(self) -> None:
            super().__init__(aggr=aggregation)
            self.first, self.second = torch.nn.Linear(2 * 6 + edge_features, 5), torch.nn.Linear(5, 5)
            self.third, self.fourth = torch.nn.Linear(6 + 5, 5), torch.nn.Linear(5, 4)

        def forward(self, x: Any, edge_index: Any, edges: Any) -> Any:
            gathered = self.propagate(edge_index, x=x, edges=edges)
            return self.fourth(self.third(torch.cat([x, gathered], dim=1)).relu())

        def message(self, x_i: Any, x_j: Any, edges: Any) -> Any:
            return self.second(self.first(torch.cat([x_i, x_j, edges], dim=1)).relu())

    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 6)).astype(np.float32)
    edges = rng.normal(size=(messy_graph.num_edges, edge_features)).astype(np.float32)
    theirs = Peer()
    ours = MPNNConv(6, 4, hidden_features=5, edge_features=edge_features, aggregation=aggregation, rngs=nnx.Rngs(0))
    for mine, linear in (
        (ours.message, theirs.first),
        (ours.message_out, theirs.second),
        (ours.update, theirs.third),
        (ours.update_out, theirs.fourth),
    ):
        mine.kernel[...] = jnp.asarray(linear.weight.detach().numpy().T)
        mine.bias[...] = jnp.asarray(linear.bias.detach().numpy())
    expected = theirs(torch.tensor(x), peers.edge_index, torch.tensor(edges)).detach().numpy()
    arrays = (jnp.asarray(x), jnp.asarray(edges) if edge_features else None)
    np.testing.assert_allclose(run(ours, messy_graph, *arrays), expected, atol=1e-5)
