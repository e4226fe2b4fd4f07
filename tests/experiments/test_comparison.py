"""The protocol by which convergence is compared."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.experiments.comparison import Crossing, Interval, crossing, paired_difference, paired_ratio, target_of


def test_crossing_is_judged_on_the_mean_of_three_epochs():
    # A single epoch above the target does not count; the window that reaches it ends at epoch 6.
    accuracies = [0.1, 0.9, 0.1, 0.7, 0.8, 0.9, 0.9]
    assert crossing(accuracies, 0.75) == Crossing(6, censored=False)
    assert crossing([0.8, 0.8, 0.8], 0.79) == Crossing(3, censored=False)


def test_a_run_that_never_crosses_is_censored_at_its_end():
    assert crossing([0.1] * 50, 0.5) == Crossing(50, censored=True)
    assert crossing([0.9, 0.9], 0.5) == Crossing(2, censored=True)


def test_target():
    assert target_of([0.8, 0.9]) == pytest.approx(0.84)
    with pytest.raises(ValueError, match="at least one run"):
        target_of([])


def test_pairs_cancel_what_seeds_have_in_common():
    rng = np.random.default_rng(0)
    baseline = rng.uniform(10, 100, 40)
    found = paired_ratio(1.25 * baseline, baseline)
    assert found.estimate == pytest.approx(1.25)
    assert found.high - found.low < 1e-12  # unpaired, the interval would be tens of per cent wide
    difference = paired_difference(baseline + 2, baseline)
    assert (difference.estimate, difference.low, difference.high) == pytest.approx((2, 2, 2))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for k in range(100):
        values = rng.normal(0.3, 1, 50)
        found = paired_difference(values, np.zeros(50), seed=k)
        covered += found.low <= 0.3 <= found.high
    assert 88 <= covered <= 99


def test_same_accuracy_means_that_the_whole_interval_is_near_zero():
    assert Interval(0.0, -0.004, 0.004).inside(0.005)
    assert not Interval(0.0, -0.004, 0.006).inside(0.005)


def test_pairs_must_match():
    with pytest.raises(ValueError, match="same length"):
        paired_ratio([1, 2], [1])
