"""Heartbeats: who is silent is told of, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

from dorylax.clock import VirtualClock
from dorylax.pipeline.hosts.heartbeat import BEATS, Heartbeat
from dorylax.pipeline.transport.base import Address

HOME = Address("driver", 0)


class Answering:
    """A transport whose processes answer after some seconds, as a function of their number and the time says."""

    def __init__(self, clock: VirtualClock, seconds: Any) -> None:
        self._clock, self._seconds = clock, seconds

    async def request(self, sender: Address, receiver: Address, kind: str, payload: Any, **_: Any) -> None:
        assert (sender, kind, payload) == (HOME, "beat", None)
        seconds = self._seconds(receiver.index, self._clock.now())
        if seconds is None:
            await asyncio.Future()
        else:
            await self._clock.sleep(seconds, (receiver.index,))


def silent(seconds: Any, until: float = 60.0, timeout: float = 5.0) -> list[tuple[float, int]]:
    """When who is told of."""
    found: list[tuple[float, int]] = []
    with VirtualClock() as clock:
        transport: Any = Answering(clock, seconds)
        heart = Heartbeat(HOME, transport, clock, timeout, lambda number: found.append((clock.now(), number)))
        heart.watch([0, 1])
        clock.run(clock.sleep(until, (9,)))
        heart.stop()
    return found


def test_those_who_answer_are_left_alone() -> None:
    assert silent(lambda number, now: 0.1) == []


def test_who_answers_late_is_not_lost() -> None:
    assert silent(lambda number, now: 4.5) == []


def test_one_beat_that_is_lost_is_not_a_loss() -> None:
    assert silent(lambda number, now: None if 10 < now < 14 else 0.1) == []


def test_who_does_not_answer_is_told_of_once_after_the_time_out() -> None:
    ((when, number),) = silent(lambda number, now: 0.1 if number == 0 or now < 20 else None)
    assert number == 1
    assert 20 + 5 - 5 / BEATS <= when <= 20 + 5 + 5 / BEATS


def test_a_watcher_that_was_stopped_itself_takes_nobody_for_lost() -> None:
    """Its clock jumps on, and it gets the answers that have come meanwhile before it counts."""
    with VirtualClock() as clock:
        found: list[int] = []
        transport: Any = Answering(clock, lambda *_: 0.1)
        heart = Heartbeat(HOME, transport, clock, 5.0, found.append)
        heart.watch([0])
        clock.run(clock.sleep(1.5, (9,)))
        clock.jump(1.9)
        clock.run(clock.sleep(300, (9,)))
        heart.stop()
    assert found == []


def test_after_watch_those_before_are_forgotten() -> None:
    with VirtualClock() as clock:
        found: list[int] = []
        transport: Any = Answering(clock, lambda number, _: None if number == 0 else 0.1)
        heart = Heartbeat(HOME, transport, clock, 5.0, found.append)
        heart.watch([0, 1])
        clock.run(clock.sleep(4, (9,)))
        heart.watch([1])
        clock.run(clock.sleep(60, (9,)))
        heart.stop()
    assert found == []
