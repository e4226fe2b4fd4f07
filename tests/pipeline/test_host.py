"""In which order an interval of a host enters, pulls, takes its steps and reports."""

from __future__ import annotations

import numpy as np

from dorylax.metrics.evaluation import Evaluated

FEATURES, HIDDEN, KEY = "features", "hidden", "key"


def test_evaluations_of_intervals_add_up() -> None:
    parts = [Evaluated(np.array([[1, number]]), number == 1) for number in range(3)]
    total = Evaluated.of(parts)
    np.testing.assert_array_equal(total.sums, [[3, 3]])
    assert total.nan
    assert not Evaluated.of(parts[::2]).nan
