"""Metrics of numbers, beside their definitions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dorylax.metrics.catalogue import MEASURES

DEFINITIONS = {
    "mae": lambda y, p: np.abs(y - p).mean(),
    "rmse": lambda y, p: np.sqrt(np.square(y - p).mean()),
    "r2": lambda y, p: np.mean(1 - np.square(y - p).sum(axis=0) / np.square(y - y.mean(axis=0)).sum(axis=0)),
}


@pytest.mark.parametrize("width", [(), (1,), (3,)])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_it_is_over_all_entries_of_a_mask(name: str, width: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.normal(size=(30, *width)) + 100).astype(np.float32)
    outputs = (labels + rng.normal(size=labels.shape)).astype(np.float32).reshape(30, -1)  # a model's are [V, T]
    masks = np.stack([np.arange(30) < 12, np.arange(30) >= 12])
    measure = MEASURES[name]
    sums = measure.sums(*map(jnp.asarray, (outputs, labels, masks)))
    for number, mask in enumerate(masks):
        expected = DEFINITIONS[name](labels[mask].astype(float), outputs.reshape(labels.shape)[mask].astype(float))
        assert measure.value(sums, number) == pytest.approx(expected, rel=1e-5)


def test_what_does_not_vary_has_no_r2() -> None:
    assert "vary" in MEASURES["r2"].undefined(np.ones(4, np.float32))
    assert not MEASURES["r2"].undefined(np.array([1.0, 2.0], np.float32))
