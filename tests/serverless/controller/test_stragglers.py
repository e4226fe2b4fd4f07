from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.serverless.controller import Stragglers

SECONDS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)


def test_a_stage_has_its_own_mean_once_there_are_enough_calls() -> None:
    stragglers = Stragglers(factor=5.0, least=2)
    stragglers.observe(3, 1.0)
    assert stragglers.threshold(3) is None
    stragglers.observe(3, 2.0)
    assert stragglers.threshold(3) == 7.5
    assert stragglers.threshold(4) is None


def test_as_in_the_paper_unless_told_otherwise() -> None:
    stragglers = Stragglers()
    for _ in range(9):
        stragglers.observe(0, 2.0)
    assert stragglers.threshold(0) is None
    stragglers.observe(0, 2.0)
    assert stragglers.threshold(0) == 10.0


def test_calls_that_take_no_time_are_never_late() -> None:
    stragglers = Stragglers(least=1)
    stragglers.observe(0, 0.0)
    assert stragglers.threshold(0) is None


def test_the_mean_follows_a_run_that_becomes_faster() -> None:
    stragglers = Stragglers(factor=2.0, least=1, window=4)
    for _ in range(4):
        stragglers.observe(0, 8.0)
    for _ in range(40):
        stragglers.observe(0, 1.0)
    assert stragglers.threshold(0) == pytest.approx(2.0, abs=0.01)


@given(SECONDS)
def test_the_mean_is_that_of_all_calls_within_the_window(seconds: list[float]) -> None:
    stragglers = Stragglers(factor=3.0, least=1, window=50)
    for one in seconds:
        stragglers.observe(0, one)
    assert stragglers.threshold(0) == pytest.approx(3 * math.fsum(seconds) / len(seconds))


@given(SECONDS, st.integers(1, 10))
def test_the_mean_lies_among_what_was_seen(seconds: list[float], window: int) -> None:
    stragglers = Stragglers(factor=2.0, least=1, window=window)
    for one in seconds:
        stragglers.observe(0, one)
    rounding = 1e-9 * max(seconds)
    assert min(seconds) - rounding <= stragglers.threshold(0) / 2 <= max(seconds) + rounding


@given(SECONDS, SECONDS)
def test_goes_on_from_a_checkpoint_to_the_bit(before: list[float], after: list[float]) -> None:
    one, other = Stragglers(least=3, window=7), Stragglers(least=3, window=7)
    other.observe(9, 1.0)  # what came before the checkpoint was read is forgotten
    for seconds in before:
        one.observe(2, seconds)
    other.restore(json.loads(json.dumps(one.state())))
    for seconds in after:
        one.observe(2, seconds)
        other.observe(2, seconds)
    assert one.threshold(2) == other.threshold(2)
    assert one.state() == other.state()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"factor": 1.0}, "factor of stragglers must be finite and > 1, got 1.0"),
        ({"factor": math.nan}, "got nan"),
        ({"least": 0}, "least of stragglers must be ≥ 1 call, got 0"),
        ({"window": 0}, "window of stragglers must be ≥ 1 call, got 0"),
    ],
)
def test_refuses_what_means_nothing(options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Stragglers(**options)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_refuses_seconds_that_cannot_be(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite and ≥ 0"):
        Stragglers().observe(0, seconds)
