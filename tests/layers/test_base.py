from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import jax.numpy as jnp
import pytest
from flax import nnx

from dorylax.layers import GCN, GCNII, APPNPConv, GATConv, GATv2Conv, GCN2Conv, MPNNConv, SGConv
from dorylax.layers.base import check_choice, check_width, follow_input
from dorylax.layers.model import JumpKind
from dorylax.layers.norm import NormKind
from dorylax.layers.sage import Aggregation


def test_integers_are_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="features must be of a floating dtype, got int32: cast them to float32"):
        follow_input((jnp.ones(2, jnp.int32),))


def test_wrong_width_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"GCNConv expects features of shape \[V, 4\] \(its in_features\), got \[3, 5\]"
    ):
        check_width("GCNConv", jnp.ones((3, 5)), 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(GCN, 0, 2, 2), "in_features must be ≥ 1, got 0"),
        (partial(GCN, 2, 0, 2), "hidden_features must be ≥ 1, got 0"),
        (partial(GCN, 2, 2, 0), "out_features must be ≥ 1, got 0"),
        (partial(GCN, 2, 2, 2, num_layers=0), "num_layers must be ≥ 1, got 0"),
        (partial(GCNII, 5, 4, 3, num_layers=0), "num_layers must be ≥ 1, got 0"),
        (partial(GATConv, 3, 2, heads=0), "heads must be ≥ 1, got 0"),
        (partial(GATv2Conv, 3, 2, heads=0), "heads must be ≥ 1, got 0"),
        (partial(SGConv, 4, 3, num_propagations=0), "num_propagations must be ≥ 1, got 0"),
        (partial(APPNPConv, num_propagations=0), "num_propagations must be ≥ 1, got 0"),
        (partial(APPNPConv, alpha=1.5), "alpha must be between 0 and 1, got 1.5"),
        (partial(APPNPConv, alpha=math.nan), "alpha must be between 0 and 1, got nan"),
        (partial(GCN2Conv, 3, alpha=-0.5), "alpha must be between 0 and 1, got -0.5"),
        (partial(GCN2Conv, 3, theta=0.0), "theta must be > 0, got 0.0"),
        (partial(GCN2Conv, 3, layer=0), "layer must be ≥ 1, the place of the layer in its network; got 0"),
        (partial(MPNNConv, 4, 3, edge_features=-1), "edge_features must be ≥ 0, got -1"),
        (
            partial(check_choice, "aggregation", "median", Aggregation),
            "aggregation must be one of mean, sum, max, got 'median'",
        ),
        (partial(check_choice, "jk", "lstm", JumpKind), "jk must be one of none, concat, max, got 'lstm'"),
        (
            partial(check_choice, "norm", "lstm", NormKind),
            "norm must be one of none, layer, rms, batch, graph, pair, got 'lstm'",
        ),
    ],
)
def test_options_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make() if make.func is check_choice else make(rngs=nnx.Rngs(0))
