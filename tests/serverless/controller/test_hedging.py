from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.serverless.controller import Hedging

SECONDS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60)


def observed(hedging: Hedging, seconds: list[float], stage: int = 0) -> Hedging:
    """After a cold start, which is not counted."""
    hedging.observe(stage, -2.0, -1.0)
    for one in seconds:
        hedging.observe(stage, 0.0, one)
    return hedging


def test_a_stage_has_its_own_threshold_once_there_are_enough_calls() -> None:
    hedging = observed(Hedging(), [float(k) for k in range(1, 20)])
    assert hedging.threshold(0) is None
    assert observed(hedging, [20.0]).threshold(0) == 19.0
    assert hedging.threshold(1) is None


def test_calls_that_begin_before_the_first_answer_are_not_counted() -> None:
    hedging = observed(Hedging(), [])
    for _ in range(20):
        hedging.observe(0, -2.0, 40.0)
    assert hedging.threshold(0) is None
    assert observed(hedging, [2.0] * 20).threshold(0) == 2.5


def test_calls_that_take_equally_long_are_not_late_by_noise() -> None:
    assert observed(Hedging(), [1.0] * 18 + [1.01] * 2).threshold(0) == 1.25


def test_calls_that_take_no_time_are_never_late() -> None:
    assert observed(Hedging(), [0.0] * 30).threshold(0) is None


def test_the_threshold_follows_a_run_that_becomes_faster() -> None:
    hedging = observed(Hedging(window=20), [8.0] * 20)
    assert observed(hedging, [1.0] * 19).threshold(0) == 1.25


@given(SECONDS, st.sampled_from([0.5, 0.75, 0.9, 0.95]), st.integers(20, 60), st.lists(st.booleans(), max_size=60))
def test_decides_as_a_plain_computation_does(
    seconds: list[float], quantile: float, window: int, asks: list[bool]
) -> None:
    """The threshold is the quantile of the last calls; of n calls at most 2 (1 − quantile) n are repeated."""
    hedging, share = Hedging(quantile=quantile, window=window), Fraction(2 * (1 - quantile))
    spent = budget = 0
    observed(hedging, [], stage=7)
    for place, one in enumerate(seconds):
        hedging.observe(7, 0.0, one)
        budget = min(budget + share, share * window)
        recent = sorted(seconds[max(0, place + 1 - window) : place + 1])
        late = [t for t in recent if sum(other <= t for other in recent) >= quantile * len(recent)]
        enough = len(recent) * (1 - quantile) >= 1 - 1e-9
        assert hedging.threshold(7) == (max(late[0], 1.25 * recent[(len(recent) - 1) // 2]) if enough else None)
        if place < len(asks) and asks[place] and abs(budget - 1) > 1e-6:
            assert hedging.spend(7) == (budget >= 1)
            spent, budget = spent + (budget >= 1), budget - (budget >= 1)
    assert spent <= share * len(seconds)
    assert not hedging.spend(8)


@given(SECONDS, SECONDS)
def test_continues_from_a_checkpoint_to_the_bit(before: list[float], after: list[float]) -> None:
    one, other = Hedging(window=25), Hedging(window=25)
    observed(other, [1.0], stage=9)  # forgotten by `restore`
    observed(one, before, stage=2)
    one.spend(2)
    other.restore(json.loads(json.dumps(one.state())))
    for seconds in after:
        one.observe(2, 0.0, seconds)
        other.observe(2, 0.0, seconds)
        assert one.threshold(2) == other.threshold(2)
        assert one.spend(2) == other.spend(2)
    assert one.state() == other.state()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"quantile": 1.0}, "quantile of hedging must be > 0 and < 1, got 1.0"),
        ({"quantile": math.nan}, "got nan"),
        ({"window": 19}, "window of hedging must be ≥ 20 calls, got 19"),
    ],
)
def test_refuses_options_out_of_range(options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Hedging(**options)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_refuses_impossible_seconds(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite and ≥ 0"):
        Hedging().observe(0, 0.0, seconds)
