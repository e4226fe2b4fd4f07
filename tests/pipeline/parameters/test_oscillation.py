from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from support.pipelines import messy_data, one_compilation, running

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.oscillation import HOLD, LAGS, WINDOW, OscillationWatch

PARAMS = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32), "steps": np.zeros(2, np.int32)}
RANDOM = np.random.default_rng(5)
DIRECTION = RANDOM.normal(size=10)
compilation = one_compilation(40, 40)


def gradients(flat: np.ndarray) -> dict[str, np.ndarray]:
    """As a tree like `PARAMS`; what is no floating-point number has none."""
    flat = flat.astype(np.float32)
    return {"a": flat[:6].reshape(2, 3), "b": flat[6:], "steps": np.full(2, 7, np.int32)}


def steady(each: Iterable[np.ndarray], limit: float = 0.5) -> str:
    """Of each gradient, whether intervals may run ahead of the version that it leads to."""
    watch = OscillationWatch(limit)
    known, found = watch.start(PARAMS), ""
    assert not known.steady
    for flat in each:
        known = watch.after(known, gradients(flat))
        found += "-+"[known.steady]
    return found


def turning(period: float, count: int) -> list[np.ndarray]:
    """Gradients of an oscillation of which a whole period takes this many updates."""
    return [np.cos(2 * np.pi * k / period) * DIRECTION for k in range(count)]


def test_nobody_runs_ahead_before_some_gradients_are_known() -> None:
    assert steady([DIRECTION] * 8) == "-" * WINDOW + "+" * (8 - WINDOW)


@pytest.mark.parametrize("period", [2, 4, 5, 2 * LAGS])
def test_oscillations_up_to_twice_the_largest_distance_are_seen(period: int) -> None:
    """Of gradients of any length."""
    away = [10.0**k * flat for k, flat in enumerate(turning(period, 9))]
    assert steady(away) == "-" * 9


def test_slow_turns_and_noise_are_no_oscillation() -> None:
    slow = [np.cos(t) * DIRECTION + np.sin(t) * RANDOM.normal(size=10) for t in np.linspace(0, 1, 12)]
    assert steady(slow) == "-" * WINDOW + "+" * (12 - WINDOW)
    wide = [DIRECTION[0] * np.eye(10)[k % 10] for k in range(12)]  # of no likeness at all
    assert steady(wide) == "-" * WINDOW + "+" * (12 - WINDOW)


def test_a_pause_is_twice_as_long_each_time() -> None:
    found = steady(turning(2, 7 * HOLD))
    assert found == "-" * 7 * HOLD
    calm = 2 * WINDOW + HOLD
    found = steady([*turning(2, WINDOW + 1), *[DIRECTION] * calm, *turning(2, 6), *[DIRECTION] * (4 * HOLD)])
    pauses = [len(part) for part in found.split("+") if part]
    assert pauses == [WINDOW + HOLD, 2 * HOLD]


def test_the_limit_is_a_mean_cosine() -> None:
    turned = turning(2, 12)
    mixed = [flat + 0.6 * np.roll(DIRECTION, 3) for flat in turned]
    cosine = float(mixed[0] @ mixed[1] / np.linalg.norm(mixed[0]) / np.linalg.norm(mixed[1]))
    assert -0.9 < cosine < -0.1
    assert "+" not in steady(mixed, -cosine - 0.01)
    assert "+" in steady(mixed, -cosine + 0.01)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, 1e30])
def test_gradients_without_a_direction_are_like_none(value: float) -> None:
    assert steady([np.full(10, value)] * 7) == "-" * WINDOW + "+++"


@pytest.mark.parametrize(
    ("options", "ahead"), [({}, False), ({"oscillation_limit": 1}, True), ({"predict_weights": "none"}, False)]
)
def test_intervals_wait_while_nobody_may_be_ahead(options: dict[str, Any], ahead: bool) -> None:
    given = {
        "servers": 2,
        "intervals": 3,
        "parameter_servers": 2,
        "clock": "virtual",
        "edge_chunk": 40,
        "mode": "async",
    }
    with running("gcn", messy_data(40, 160), PipelineConfig(**given | options)) as run:
        first, later = [run.run_epoch().seconds for _ in range(WINDOW)], [run.run_epoch().seconds for _ in range(6)]
        held = run.counters()["pulls_held"]
    assert (held == 0) == ahead
    assert ahead or np.mean(first[1:]) > 1.05 * np.mean(later[1:])
