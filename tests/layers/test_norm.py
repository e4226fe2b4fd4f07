from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.layers.norm import check_norm, make_norm


def test_by_hand() -> None:
    x = jnp.array([[1.0, 3.0], [-2.0, 2.0]])
    layer, rms = (make_norm(kind, 2, rngs=nnx.Rngs(0)) for kind in ("layer", "rms"))
    np.testing.assert_allclose(layer(x), [[-1, 1], [-1, 1]], atol=1e-5)
    np.testing.assert_allclose(rms(x), [[1 / np.sqrt(5), 3 / np.sqrt(5)], [-1, 1]], atol=1e-5)


def test_none_is_no_layer() -> None:
    assert make_norm("none", 2, rngs=nnx.Rngs(0)) is None


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_dtype_follows_the_input_and_statistics_do_not_overflow(kind: str) -> None:
    x = jnp.array([[30000.0, -30000.0]], jnp.float16)
    y = make_norm(kind, 2, rngs=nnx.Rngs(0))(x)
    assert y.dtype == jnp.float16
    np.testing.assert_allclose(y, [[1, -1]], atol=1e-3)


def test_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="norm must be one of none, layer, rms, got 'batch'"):
        check_norm("batch")
