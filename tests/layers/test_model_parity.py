"""Whole models beside PyG's with the same weights, without dropout: outputs and gradients of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import APPNP, GAT, GCN, GCNII, GIN, GraphSAGE

IN, HIDDEN, DEPTH = 6, 8, 3


def copy(param: Any, tensor: Any, *, transpose: bool = False) -> None:
    value = tensor.detach().numpy()
    param[...] = jnp.asarray((value.T if transpose else value).reshape(param.shape))


def copy_gcn(ours: Any, theirs: Any) -> None:
    copy(ours.kernel, theirs.lin.weight, transpose=True)
    copy(ours.bias, theirs.bias)


def copy_gat(ours: Any, theirs: Any) -> None:
    copy_gcn(ours, theirs)
    copy(ours.attention_source, theirs.att_src)
    copy(ours.attention_target, theirs.att_dst)


def copy_linear(ours: Any, theirs: Any) -> None:
    copy(ours.kernel, theirs.weight, transpose=True)
    copy(ours.bias, theirs.bias)


def copy_sage(ours: Any, theirs: Any) -> None:
    copy(ours.kernel_neighbours, theirs.lin_l.weight, transpose=True)
    copy(ours.kernel_self, theirs.lin_r.weight, transpose=True)
    copy(ours.bias, theirs.lin_l.bias)


def copy_gin(ours: Any, theirs: Any) -> None:
    for mine, linear in zip((ours.hidden, ours.out), theirs.nn.lins, strict=True):
        copy(mine.kernel, linear.weight, transpose=True)
        copy(mine.bias, linear.bias)


# name: our model, the arguments of PyG's, how to copy one layer. PyG's `hidden_channels` counts all heads together.
CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], Callable[[Any, Any], None]]] = {
    "GCN": (lambda: GCN(IN, HIDDEN, 5, num_layers=DEPTH, rngs=nnx.Rngs(0)), {"out_channels": 5}, copy_gcn),
    "GAT": (
        lambda: GAT(IN, HIDDEN // 2, 5, num_layers=DEPTH, heads=2, output_heads=2, rngs=nnx.Rngs(0)),
        {"out_channels": 5, "heads": 2, "act": "elu"},
        copy_gat,
    ),
    "GCN jk concat": (
        lambda: GCN(IN, HIDDEN, 5, num_layers=DEPTH, jk="concat", rngs=nnx.Rngs(0)),
        {"out_channels": 5, "jk": "cat"},
        copy_gcn,
    ),
    "GraphSAGE": (lambda: GraphSAGE(IN, HIDDEN, 5, num_layers=DEPTH, rngs=nnx.Rngs(0)), {"out_channels": 5}, copy_sage),
    # PyG's perceptrons are as wide inside as outside, ours as the hidden rows: equal where the output is as wide.
    "GIN": (lambda: GIN(IN, HIDDEN, HIDDEN, num_layers=DEPTH, rngs=nnx.Rngs(0)), {"out_channels": HIDDEN}, copy_gin),
}


@pytest.mark.parametrize("name", CASES)
def test_parity_with_pyg(name: str, messy_graph: Graph, peers: Any, run: Any) -> None:
    make, options, copy_layer = CASES[name]
    theirs = getattr(peers.nn, name.split(maxsplit=1)[0])(IN, HIDDEN, DEPTH, **options).eval()
    ours = make()
    for mine, layer in zip(ours.convs, theirs.convs, strict=True):
        copy_layer(mine, layer)
    if ours.skeleton.jump is not None:
        copy_linear(ours.skeleton.jump.out, theirs.lin)
    assert_same(ours, theirs, messy_graph, peers, run)


def assert_same(ours: Any, theirs: Any, messy_graph: Graph, peers: Any, run: Any) -> None:
    """Outputs, and gradients of the input."""
    ours.eval()
    x = np.random.default_rng(0).normal(size=(12, IN)).astype(np.float32)
    their_x = peers.torch.tensor(x, requires_grad=True)
    their_y = theirs(their_x, peers.edge_index)
    their_y.square().sum().backward()
    np.testing.assert_allclose(run(ours, messy_graph, jnp.asarray(x)), their_y.detach().numpy(), atol=1e-5)
    gradient = jax.jit(jax.grad(lambda x: (ours(messy_graph, x) ** 2).sum()))(jnp.asarray(x))
    np.testing.assert_allclose(gradient, their_x.grad.numpy(), atol=1e-4, rtol=1e-4)


def test_parity_with_appnp_as_pygs_users_write_it(messy_graph: Graph, peers: Any, run: Any) -> None:
    torch = peers.torch
    ours = APPNP(IN, HIDDEN, 5, num_propagations=4, alpha=0.2, edge_dropout=0.5, rngs=nnx.Rngs(0))
    first, second = torch.nn.Linear(IN, HIDDEN), torch.nn.Linear(HIDDEN, 5)
    propagation = peers.nn.APPNP(K=4, alpha=0.2)
    for mine, linear in zip(ours.convs, (first, second), strict=True):
        copy_linear(mine, linear)
    theirs = lambda x, edge_index: propagation(second(first(x).relu()), edge_index)  # noqa: E731
    assert_same(ours, theirs, messy_graph, peers, run)


@pytest.mark.parametrize("share_weights", [True, False], ids=["shared", "separate"])
def test_parity_with_gcnii_as_pygs_users_write_it(
    share_weights: bool, messy_graph: Graph, peers: Any, run: Any
) -> None:
    torch = peers.torch
    ours = GCNII(IN, HIDDEN, 5, num_layers=DEPTH, alpha=0.2, theta=0.7, share_weights=share_weights, rngs=nnx.Rngs(0))
    before, after = torch.nn.Linear(IN, HIDDEN), torch.nn.Linear(HIDDEN, 5)
    convs = [
        peers.nn.GCN2Conv(HIDDEN, alpha=0.2, theta=0.7, layer=layer + 1, shared_weights=share_weights)
        for layer in range(DEPTH)
    ]
    copy_linear(ours.linear_in, before)
    copy_linear(ours.linear_out, after)
    for mine, conv in zip(ours.convs, convs, strict=True):
        copy(mine.kernel, conv.weight1)
        if not share_weights:
            copy(mine.kernel_initial, conv.weight2)

    def theirs(x: Any, edge_index: Any) -> Any:
        h = first = before(x).relu()
        for conv in convs:
            h = conv(h, first, edge_index).relu()
        return after(h)

    assert_same(ours, theirs, messy_graph, peers, run)
