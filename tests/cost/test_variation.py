from __future__ import annotations

import math
import statistics

import pytest

from dorylax.cost import Variation
from dorylax.settings.errors import ConfigError

KEYS = [(k, k % 7) for k in range(4000)]


def test_jitter_is_lognormal_with_median_1():
    variation = Variation(sigma=0.3, straggler_probability=0.0, straggler_factor=1.0)
    logs = [math.log(variation.factor(5, "graph", key)) for key in KEYS]
    # Standard errors with 4000 draws: 0.006 of the median, 0.003 of the deviation; of a normal, 2.3 % lie beyond 2 sigma.
    assert abs(statistics.median(logs)) < 0.03
    assert statistics.stdev(logs) == pytest.approx(0.3, rel=0.05)
    assert 0.015 < sum(log > 0.6 for log in logs) / len(logs) < 0.031


def test_stragglers():
    calm = Variation(sigma=0.1, straggler_probability=0.0, straggler_factor=4.0)
    straggling = Variation(sigma=0.1, straggler_probability=0.05, straggler_factor=4.0)
    ratios = [straggling.factor(5, "graph", key) / calm.factor(5, "graph", key) for key in KEYS]
    assert {round(ratio, 9) for ratio in ratios} == {1.0, 4.0}
    jitters = [calm.factor(5, "graph", key) for key, ratio in zip(KEYS, ratios, strict=True) if ratio > 2]
    assert abs(statistics.median(jitters) - 1) < 0.03  # who straggles has nothing to do with the jitter
    assert 0.035 < sum(ratio > 2 for ratio in ratios) / len(ratios) < 0.065


def test_no_variation_is_exactly_1():
    variation = Variation(sigma=0.0, straggler_probability=0.0, straggler_factor=9.0)
    assert {variation.factor(0, "graph", key) for key in KEYS} == {1.0}


def test_draws_differ_by_seed_kind_and_key():
    variation = Variation(sigma=0.5, straggler_probability=0.0, straggler_factor=1.0)
    arguments = [
        (seed, kind, key) for seed in (0, 1) for kind in ("a", "b") for key in [(), (1,), (1, 2), (12,), (2, 1)]
    ]
    assert len({variation.factor(*one) for one in arguments}) == len(arguments)


def test_a_draw_never_changes():
    """Recorded runs are repeated by their seed, in later versions too."""
    variation = Variation(sigma=0.5, straggler_probability=0.5, straggler_factor=3.0)
    draws = [variation.factor(7, "tensor", key) for key in [(1, 2, 3), (0,), (-5, 2**40)]]
    assert draws == pytest.approx([1.0002309386605526, 1.6887134132718071, 1.52226777909032], rel=1e-12)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ((-0.1, 0.0, 1.0), "sigma must be ≥ 0, got -0.1"),
        ((float("nan"), 0.0, 1.0), "sigma must be finite, got nan"),
        ((0.1, 1.0, 1.0), "straggler_probability must be ≥ 0 and < 1, got 1.0"),
        ((0.1, 0.5, 0.5), "straggler_factor must be ≥ 1, got 0.5"),
    ],
)
def test_what_cannot_be_is_refused(values, problem):
    with pytest.raises(ConfigError, match=f"^{problem}$"):
        Variation(*values)
