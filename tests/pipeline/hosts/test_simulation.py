"""Hosts under simulated faults: what holds for every seed holds for some. More of them: benchmarks/simulation.py."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from support.simulated_hosts.bugs import BUGS
from support.simulated_hosts.trial import CONFIGURATIONS, POLICIES, run, warm

pytestmark = pytest.mark.timeout(240)

FOUND_BY = {"acknowledgement": 0, "ghost": 76, "stash": 0, "abandoned": 31, "contained": 78, "barrier": 137}
"""For each bug, the first seed that finds it without the stability gate (`python benchmarks/simulation.py --bugs`)."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("dorylax")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def test_nothing_breaks_and_a_seed_replays_event_by_event() -> None:
    found = [run(seed) for seed in range(12)]
    assert [outcome.broken for outcome in found] == [None] * len(found)
    assert len({outcome.configuration for outcome in found}) > len(CONFIGURATIONS) // 2
    assert {outcome.recovery for outcome in found} == set(POLICIES)
    assert sum(outcome.counts.losses for outcome in found) > 3
    assert [run(seed)[4:] for seed in (1, 7)] == [found[seed][4:] for seed in (1, 7)]


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_is_found_and_the_seed_that_finds_it_replays(bug: str) -> None:
    warm()
    seed = FOUND_BY[bug]
    with BUGS[bug]():
        found = run(seed, gated=False, recovery="rerun")
        assert found.broken is not None
        assert run(seed, gated=False, recovery="rerun")[4:] == found[4:]
    assert run(seed, gated=False, recovery="rerun").broken is None


def test_an_asynchronous_restart_repeats_no_epoch_that_the_driver_has_not_received() -> None:
    found = run(78, recovery="restart")
    assert found.configuration.startswith("async")
    assert found.counts.losses > 0
    assert found.broken is None


@pytest.mark.exhaustive  # `benchmarks/simulation.py` tries 10,000 seeds, for hours
@pytest.mark.timeout(900)
def test_nothing_breaks_by_many_seeds() -> None:
    assert [seed for seed in range(12, 150) if run(seed).broken is not None] == []
