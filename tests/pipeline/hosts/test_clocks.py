from __future__ import annotations

from random import Random

from dorylax.pipeline.hosts.clocks import DRIFT, RemoteClock


def test_the_shortest_round_trip_says_most() -> None:
    clock = RemoteClock()
    clock.heard(10.0, 3.0, 12.0)
    assert (clock.offset, clock.error(12.0)) == (8.0, 1.0)
    clock.heard(13.0, 4.0, 19.0)  # on its way for longer
    assert clock.offset == 8.0
    clock.heard(20.0, 12.5, 20.5)
    assert (clock.offset, clock.error(20.5)) == (7.75, 0.25)


def test_what_is_known_ages() -> None:
    """After a while a longer round trip says more than a shorter one long ago."""
    clock = RemoteClock()
    clock.heard(0.0, 0.0, 0.001)
    assert clock.error(1000.001) == 0.0005 + 1000 * DRIFT
    clock.heard(1000.0, 999.95, 1000.02)
    assert 0.05 < clock.offset < 0.07


def test_the_truth_lies_within_the_error_whatever_messages_and_clocks_do() -> None:
    for seed in range(200):
        random = Random(seed)
        clock, origin, rate = RemoteClock(), random.uniform(-1e3, 1e3), 1 + random.uniform(-1, 1) * DRIFT
        now = 0.0
        for _ in range(30):
            asked, now = now, now + random.expovariate(1000)
            there = origin + rate * now
            now += random.expovariate(1000)
            clock.heard(asked, there, now)
            now += random.expovariate(0.1)
            truth = now - (origin + rate * now)
            assert abs(clock.offset - truth) <= clock.error(now) + 1e-9
