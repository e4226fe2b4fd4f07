from __future__ import annotations

import numpy as np

from dorylax.graph.datasets.random_streams import Stream, halves, scaled


def test_the_same_key_gives_the_same_words_and_another_key_others() -> None:
    words = Stream(7, 1, 2).words(100)
    assert np.array_equal(Stream(7, 1, 2).words(100), words)
    for other in (Stream(8, 1, 2), Stream(7, 1, 3), Stream(7, 2, 2), Stream(7, 1)):
        assert not np.isin(other.words(100), words).any()


def test_words_are_those_of_every_machine() -> None:
    assert Stream(0, 1).words(2).tolist() == GOLDEN_WORDS


def test_uniform_and_below_stay_in_range_and_fill_it() -> None:
    uniform = Stream(0).uniform(10_000)
    assert 0 <= uniform.min() < 0.001
    assert 0.999 < uniform.max() < 1
    assert np.array_equal(np.unique(Stream(0).below(7, 10_000)), np.arange(7))
    # 10,000 draws: the standard deviation of a count is 35
    assert abs(np.bincount(Stream(0).below(7, 10_000)) - 10_000 / 7).max() < 5 * 35


def test_near_normal_has_the_moments_it_claims() -> None:
    x = Stream(0).near_normal(1_000_000).astype(np.float64)
    assert x.dtype == np.float64
    assert abs(x.mean()) < 5e-3
    assert abs(x.var() - 1) < 1e-2
    assert abs((x**4).mean() - 2.7) < 5e-2  # kurtosis 3 - 0.3
    assert abs(x).max() <= 3.465


def test_scaled_covers_the_ends() -> None:
    high, low = halves(np.array([0, 2**64 - 1, (5 << 32) + 9], np.uint64))
    assert (high.tolist(), low.tolist()) == ([0, 2**32 - 1, 5], [0, 2**32 - 1, 9])
    assert scaled(np.array([0, 2**31, 2**32 - 1], np.uint64), np.uint64(10)).tolist() == [0, 5, 9]


GOLDEN_WORDS = [16886851759604636336, 16516725356127799882]
