from __future__ import annotations

import pytest

from dorylax.pipeline.parameters.delay import DelayScaling


@pytest.mark.parametrize(
    ("epoch", "delay", "size"),
    [
        (0, 0.0, 1.0),
        (0, 1.0, 1 / 2),
        (0, 3.0, 1 / 4),
        (5, 3.0, 1 / 2),
        (10, 3.0, 1.0),
        (25, 3.0, 1.0),
        (0, -1.0, 1.0),  # predicted further than weights have come
    ],
)
def test_the_formula(epoch: int, delay: float, size: float) -> None:
    assert DelayScaling(10)(epoch, delay) == pytest.approx(size)
