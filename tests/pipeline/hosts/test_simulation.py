"""Hosts under simulated faults: what holds for every seed holds for some. More of them: benchmarks/simulation.py."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from harness.simulation.bugs import BUGS
from harness.simulation.trial import CONFIGURATIONS, run

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("dorylax")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def test_nothing_breaks_and_a_seed_replays_event_by_event() -> None:
    found = [run(seed) for seed in range(20)]
    assert [outcome.broken for outcome in found] == [None] * len(found)
    assert len({outcome.configuration for outcome in found}) > len(CONFIGURATIONS) // 2
    assert sum(outcome.losses for outcome in found) > 5
    assert [run(seed)[3:] for seed in (1, 7)] == [found[seed][3:] for seed in (1, 7)]


@pytest.mark.parametrize("bug", ["acknowledgement", "stash"])
def test_bugs_are_found(bug: str) -> None:
    with BUGS[bug]():
        assert any(run(seed).broken is not None for seed in range(10))


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_nothing_breaks_by_many_seeds() -> None:
    assert [seed for seed in range(10_000) if run(seed).broken is not None] == []
