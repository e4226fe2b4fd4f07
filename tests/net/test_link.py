"""A link's times, on a clock that only moves when somebody sleeps."""

from __future__ import annotations

import pytest
from support.manual_clock import ManualClock

from dorylax.net.link import Link, SharedLink


def test_bytes_take_their_time_and_requests_their_latency():
    clock = ManualClock()
    link = SharedLink(Link(0.02, 1000.0), clock.now, clock.sleep)
    link.request()
    link.carry(500)
    link.carry(250)
    assert clock.slept == pytest.approx([0.02, 0.5, 0.25])


def test_bytes_of_two_threads_queue_up():
    """A sleep that returns at once stands for the other thread, which comes while the first still waits."""
    clock = ManualClock()
    slept: list[float] = []
    link = SharedLink(Link(0.0, 1000.0), clock.now, slept.append)
    link.carry(1000)
    link.carry(500)
    clock.time += 10
    link.carry(500)
    assert slept == pytest.approx([1.0, 1.5, 0.5])


def test_latencies_spread_around_their_median():
    clock = ManualClock()
    draws = iter([0.0, 2.326, -1.0])
    link = SharedLink(Link(0.02, None, 0.6), clock.now, clock.sleep, lambda: next(draws))
    for _ in range(3):
        link.request()
    assert clock.slept == pytest.approx([0.02, 0.02 * 4.04, 0.02 / 1.822], rel=1e-3)


def test_a_link_that_is_not_slowed_never_sleeps():
    clock = ManualClock()
    link = SharedLink(Link(), clock.now, clock.sleep)
    link.request()
    link.carry(1 << 40)
    assert clock.slept == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"latency_seconds": -0.1}, "latency_seconds must be"),
        ({"latency_seconds": float("nan")}, "latency_seconds must be"),
        ({"latency_seconds": float("inf")}, "latency_seconds must be"),
        ({"bytes_per_second": 0.0}, "bytes_per_second must be"),
        ({"bytes_per_second": float("nan")}, "bytes_per_second must be"),
        ({"latency_sigma": -0.1}, "latency_sigma must be 0 … 3, got -0.1"),
        ({"latency_sigma": float("nan")}, "latency_sigma must be 0 … 3, got nan"),
        ({"latency_sigma": 3.1}, "latency_sigma must be 0 … 3, got 3.1"),
    ],
)
def test_links_that_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        Link(**given)
