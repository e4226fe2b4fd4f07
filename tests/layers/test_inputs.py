from __future__ import annotations

import jax.numpy as jnp
import pytest

from dorylax.layers.inputs import check_width, follow_input


def test_integers_are_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="features must be of a floating dtype, got int32: cast them to float32"):
        follow_input((jnp.ones(2, jnp.int32),))


def test_wrong_width_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"GCNConv expects features of shape \[V, 4\] \(its in_features\), got \[3, 5\]"
    ):
        check_width("GCNConv", jnp.ones((3, 5)), 4)
