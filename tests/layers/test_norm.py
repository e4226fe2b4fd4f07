from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dorylax.layers import GraphNorm
from dorylax.layers.norm import make_norm


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


@pytest.mark.parametrize("kind", ["batch", "graph", "pair"])
def test_statistics_of_all_vertices(kind: str) -> None:
    """Columns are centred, and of one spread: each by itself, or with PairNorm all together."""
    x = 3 + 5 * jnp.asarray(np.random.default_rng(0).normal(size=(50, 4)), jnp.float32)
    y = np.asarray(make_norm(kind, 4, rngs=nnx.Rngs(0))(x))
    np.testing.assert_allclose(y.mean(axis=0), np.zeros(4), atol=1e-5)
    spread = (y**2).sum(axis=1).mean() if kind == "pair" else (y**2).mean(axis=0)
    np.testing.assert_allclose(spread, 1, rtol=1e-4)


def test_running_averages_keep_nine_tenths() -> None:
    x = jnp.array([[1.0, 30.0], [3.0, 10.0]])
    norm = make_norm("batch", 2, rngs=nnx.Rngs(0))
    assert isinstance(norm, nnx.BatchNorm)
    norm(x)
    np.testing.assert_allclose(norm.mean[...], [0.2, 2.0], rtol=1e-6)
    np.testing.assert_allclose(norm.var[...], [0.9 + 0.1 * 1, 0.9 + 0.1 * 100], rtol=1e-6)


@pytest.mark.parametrize("kind", ["graph", "pair"])
def test_as_in_pytorch_geometric(kind: str) -> None:
    torch = pytest.importorskip("torch")
    norms = pytest.importorskip("torch_geometric.nn")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    ours, theirs = make_norm(kind, 4, rngs=nnx.Rngs(0)), norms.GraphNorm(4) if kind == "graph" else norms.PairNorm()
    if isinstance(ours, GraphNorm):
        for mine, other in (("mean_scale", "mean_scale"), ("scale", "weight"), ("bias", "bias")):
            drawn = rng.normal(size=4).astype(np.float32)
            getattr(ours, mine)[...] = jnp.asarray(drawn)
            getattr(theirs, other).data = torch.from_numpy(drawn)
    np.testing.assert_allclose(ours(jnp.asarray(x)), theirs(torch.from_numpy(x)).detach(), rtol=1e-4, atol=1e-5)


def test_means_do_not_overflow_in_half_precision() -> None:
    x = jnp.full((4, 2), 40000.0, jnp.float16).at[0].set(-40000.0)
    for kind in ("graph", "pair", "batch"):
        y = make_norm(kind, 2, rngs=nnx.Rngs(0))(x)
        assert y.dtype == jnp.float16
        assert np.isfinite(np.asarray(y, np.float32)).all()
