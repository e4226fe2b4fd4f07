"""Statistics over seeds: what is paired, and how often intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.experiments.seed_statistics import (
    Interval,
    band,
    mean_of_differences,
    mean_of_ratios,
    mean_std,
    median,
)


def test_mean_deviation_and_median_are_of_the_values_that_there_are() -> None:
    assert mean_std([1.0, None, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert median([5.0, None, 1.0, 2.0]) == 2.0
    assert mean_std([1.0]) == (1.0, None)
    assert mean_std([None]) == (None, None)
    assert median([]) is None


def test_a_band_is_the_interval_of_the_mean_at_each_point() -> None:
    curves = np.random.default_rng(0).normal([0.0, 10.0], [1.0, 0.0], (40, 2))
    low, high = band(curves)
    assert low[0] < curves[:, 0].mean() < high[0]
    assert low[1] == high[1] == 10.0


def test_pairs_cancel_what_seeds_have_in_common():
    rng = np.random.default_rng(0)
    baseline = rng.uniform(10, 100, 40)
    found = mean_of_ratios([(1.25 * baseline, baseline)])
    assert found.estimate == pytest.approx(1.25)
    assert found.high - found.low < 1e-12  # unpaired, the interval would be tens of per cent wide
    difference = mean_of_differences([(baseline + 2, baseline)])
    assert (difference.estimate, difference.low, difference.high) == pytest.approx((2, 2, 2))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for k in range(100):
        values = rng.normal(0.3, 1, 50)
        found = mean_of_differences([(values, np.zeros(50))], seed=k)
        covered += found.low <= 0.3 <= found.high
    assert 88 <= covered <= 99


def test_same_accuracy_means_that_the_whole_interval_is_near_zero():
    assert Interval(0.0, -0.004, 0.004, 5).inside(0.005)
    assert not Interval(0.0, -0.004, 0.006, 5).inside(0.005)


def test_each_group_counts_once_and_is_resampled_on_its_own() -> None:
    few, many = ([2.0] * 5, [1.0] * 5), ([1.0, 3.0] * 20, [2.0, 2.0] * 20)
    ratio, difference = mean_of_ratios([few, many]), mean_of_differences([few, many])
    assert (ratio.estimate, difference.estimate) == (1.5, 0.5)
    alone = mean_of_ratios([many], seed=1)
    assert ratio.low == pytest.approx((2 + alone.low) / 2)
    assert ratio.high == pytest.approx((2 + alone.high) / 2)
    with pytest.raises(ValueError, match="a mean over groups needs at least one"):
        mean_of_ratios([])


@pytest.mark.parametrize("seeds", [2, 3, 4])
@pytest.mark.parametrize("groups", [1, 3])
def test_intervals_of_few_seeds_cover_the_truth_as_often_as_they_say(seeds: int, groups: int) -> None:
    """By the bootstrap those of two seeds would half the time."""
    rng = np.random.default_rng(seeds)
    covered = {"difference": 0, "ratio": 0}
    for _ in range(400):
        pairs = [(rng.normal(1.5, 0.05, seeds), np.ones(seeds)) for _ in range(groups)]
        for name, found, truth in (
            ("difference", mean_of_differences(pairs), 0.5),
            ("ratio", mean_of_ratios(pairs), 1.5),
        ):
            assert found.few
            assert found.seeds == seeds
            covered[name] += found.low <= truth <= found.high
    assert all(370 <= count <= 396 for count in covered.values()), covered


def test_two_seeds_have_one_degree_of_freedom() -> None:
    found = mean_of_differences([([1.0, 3.0], [0.0, 0.0])])
    assert (found.estimate, found.low, found.high) == pytest.approx((2.0, 2 - 12.7062, 2 + 12.7062), abs=1e-4)


def test_one_seed_has_no_interval_and_nothing_follows() -> None:
    alone = mean_of_ratios([([1.0], [2.0])])
    assert alone.estimate == 0.5
    for one in (alone, mean_of_ratios([([1.0], [2.0]), ([1.0] * 9, [2.0] * 9)])):
        assert not one.exists
        assert (one.high < 1, one.low > 1, one.inside(10.0)) == (False, False, False)


def test_the_band_of_few_curves_is_their_range() -> None:
    assert band(np.asarray([[1.0, 5.0], [3.0, 4.0]])).tolist() == [[1.0, 4.0], [3.0, 5.0]]


def test_pairs_must_match():
    with pytest.raises(ValueError, match="same length"):
        mean_of_ratios([([1, 2], [1])])
