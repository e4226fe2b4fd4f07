from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.layers.jumping import JumpingKnowledge, check_jk


def test_by_hand() -> None:
    rows = [jnp.array([[1.0, 5.0]]), jnp.array([[3.0, 2.0]])]
    concat, largest = (JumpingKnowledge(kind, [2, 2], 3, rngs=nnx.Rngs(0)) for kind in ("concat", "max"))
    np.testing.assert_array_equal(concat.join(rows), [[1, 5, 3, 2]])
    np.testing.assert_array_equal(largest.join(rows), [[3, 5]])
    assert (concat.out.kernel.shape, largest.out.kernel.shape) == ((4, 3), (2, 3))


def test_ties_share_the_gradient_equally() -> None:
    jump = JumpingKnowledge("max", [1, 1, 1], 1, rngs=nnx.Rngs(0))
    gradients = jax.grad(lambda rows: jump.join(rows).sum())([jnp.ones((1, 1))] * 3)
    np.testing.assert_allclose(gradients, np.full((3, 1, 1), 1 / 3), rtol=1e-6)


def test_widths_may_differ_only_where_they_are_concatenated() -> None:
    assert JumpingKnowledge("concat", [2, 5], 3, rngs=nnx.Rngs(0)).out.kernel.shape == (7, 3)
    with pytest.raises(ValueError, match=r"jk max needs layers of one width, got \[2, 5\]"):
        JumpingKnowledge("max", [2, 5], 3, rngs=nnx.Rngs(0))


def test_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="jk must be one of none, concat, max, got 'lstm'"):
        check_jk("lstm")
