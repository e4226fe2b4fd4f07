from __future__ import annotations

import asyncio

import pytest

from dorylax.clock import RealClock, Use, VirtualClock


def equally(counts):
    return [8.0 / max(1, sum(counts))] * len(counts)


def test_parts_follow_each_other_and_uses_of_a_part_go_together():
    """1 s, then what takes longer of 4 and 2 s, then 0.5 s."""
    with VirtualClock(start=2.0) as clock:
        out, into = clock.shared(equally), clock.shared(equally)
        clock.run(clock.sleep((1.0, (Use((out,), 32.0), Use((into,), 16.0)), 0.5), ()))
        assert clock.now() == 7.5


def test_workers_that_share_slow_each_other_down():
    with VirtualClock() as clock:
        memory, workers = clock.shared(equally), clock.workers("graph", 2)

        async def main():
            work = (workers.run(lambda: None, seconds=(0.5, (Use((memory,), 8.0),)), order=(k,)) for k in range(3))
            return await asyncio.gather(*work)

        times = clock.run(main())
    # Two at a time share; the third waits for a worker.
    assert [(one.start, one.end) for one in times] == [(0.0, 2.5), (0.0, 2.5), (2.5, 4.0)]


def test_of_several_uses_those_that_are_not_served_yet_are_given_up():
    """A message that one network has carried at 1 s and the other would have at 4 s is given up at 2 s."""
    with VirtualClock() as clock:
        out, into = clock.shared(equally), clock.shared(equally)

        async def main():
            message = asyncio.create_task(clock.sleep(((Use((out,), 8.0), Use((into,), 32.0)),), (0,)))
            other = asyncio.create_task(clock.sleep((1.5, (Use((into,), 8.0),)), (1,)))
            await clock.sleep(2.0, (2,))
            message.cancel()
            await other
            ends = [clock.now()]
            await clock.sleep(((Use((out, into), 8.0),),), (3,))
            return [*ends, clock.now()]

        assert clock.run(main()) == [2.75, 3.75]  # shares for half a second: 2 of its 8 are served, and 6 at full speed


def test_ends_at_one_time_go_by_order():
    happened = []
    with VirtualClock() as clock:
        network = clock.shared(equally)

        async def one(name, order):
            await clock.sleep(((Use((network,), 4.0),),), order)
            happened.append(name)

        async def main():
            await asyncio.gather(one("a", (2,)), one("b", (1, 5)), one("c", (1,)))

        clock.run(main())
        assert clock.now() == 1.5
    assert happened == ["c", "b", "a"]


def test_nothing_is_shared_on_the_real_clock():
    with RealClock() as clock, pytest.raises(TypeError, match="only the virtual clock"):
        clock.run(clock.sleep((1.0,), ()))


def test_whoever_comes_at_one_moment_is_reckoned_with_once():
    """Hundreds of messages leave a server at once: speeds are asked for when all have come."""
    asked = []

    def speeds(counts):
        asked.append(tuple(counts))
        return equally(counts)

    with VirtualClock() as clock:
        network = clock.shared(speeds)

        async def main():
            await asyncio.gather(*(clock.sleep(((Use((network,), 8.0),),), (k,)) for k in range(100)))

        clock.run(main())
        assert clock.now() == 100.0
    assert asked[0] == (100,)
    assert len(asked) <= 100
