from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from dorylax.layers.base import check_choice, check_fraction, check_width, follow_input
from dorylax.layers.model import JumpKind
from dorylax.layers.norm import NormKind


def test_integers_are_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="features must be of a floating dtype, got int32: cast them to float32"):
        follow_input((jnp.ones(2, jnp.int32),))


def test_wrong_width_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"GCNConv expects features of shape \[V, 4\] \(its in_features\), got \[3, 5\]"
    ):
        check_width("GCNConv", jnp.ones((3, 5)), 4)


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=f"alpha must be between 0 and 1, got {alpha}"):
        check_fraction("alpha", alpha)


@pytest.mark.parametrize(
    ("name", "choices", "listed"),
    [("jk", JumpKind, "none, concat, max"), ("norm", NormKind, "none, layer, rms, batch, graph, pair")],
)
def test_an_unknown_choice_names_all(name: str, choices: Any, listed: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of {listed}, got 'lstm'"):
        check_choice(name, "lstm", choices)
