from __future__ import annotations

import numpy as np
import pytest

from dorylax.runs.result import still_falling


@pytest.mark.parametrize(
    ("losses", "falls"),
    [
        (np.linspace(2.0, 1.0, 100), True),
        (np.exp(-np.linspace(0, 2, 200)), True),
        (np.exp(-np.linspace(0, 6, 200)), False),
        (np.ones(100), False),
        (np.linspace(1.0, 2.0, 100), False),
        (np.linspace(2.0, 1.0, 19), False),
    ],
    ids=["evenly", "half way", "there", "flat", "rising", "too few"],
)
def test_what_falls_at_the_end(losses: np.ndarray, falls: bool) -> None:
    assert still_falling(losses.tolist()) is falls


def test_noise_of_dropout_is_no_fall() -> None:
    random = np.random.default_rng(0)
    losses = np.exp(-np.linspace(0, 8, 200)) + 0.3 + random.normal(0, 0.03, 200)
    assert not still_falling(losses.tolist())
