from __future__ import annotations

from dorylax.clock import VirtualClock
from dorylax.serverless.controller.watch import Watch


def test_tells_of_each_item_when_it_is_due_in_order() -> None:
    told = []

    async def main(clock: VirtualClock) -> None:
        watch = Watch(clock, "watch", seconds=lambda: 5.0, due=lambda item: told.append((item, clock.now())))
        for item, order in (("b", 1), ("a", 0)):
            watch.add(item, (order,))
        await clock.sleep(2.0, ())
        watch.add("c", ())
        watch.add("d", ())
        await clock.sleep(1.0, ())
        watch.discard("d")
        watch.discard("nobody")
        await clock.sleep(10.0, ())

    with VirtualClock() as clock:
        clock.run(main(clock))
    assert told == [("b", 5.0), ("a", 5.0), ("c", 7.0)]


def test_waits_until_the_time_is_known_and_follows_it() -> None:
    told, seconds = [], [None]

    async def main(clock: VirtualClock) -> None:
        watch = Watch(clock, "watch", seconds=lambda: seconds[0], due=lambda item: told.append((item, clock.now())))
        watch.add("a", ())
        await clock.sleep(3.0, ())
        seconds[0] = 4.0
        watch.rouse()
        await clock.sleep(0.5, ())
        seconds[0] = 6.0  # longer, while the timer runs
        await clock.sleep(20.0, ())

    with VirtualClock() as clock:
        clock.run(main(clock))
    assert told == [("a", 6.0)]


def test_what_is_due_may_be_watched_again() -> None:
    told = []

    async def main(clock: VirtualClock) -> None:
        def due(item: int) -> None:
            told.append((item, clock.now()))
            watch.discard(item)  # as of an attempt that gives its slot back
            if item < 3:
                watch.add(item + 1, ())

        watch = Watch(clock, "watch", seconds=lambda: 2.0, due=due)
        watch.add(0, ())
        await clock.sleep(20.0, ())

    with VirtualClock() as clock:
        clock.run(main(clock))
    assert told == [(0, 2.0), (1, 4.0), (2, 6.0), (3, 8.0)]


def test_watches_again_after_everything_was_due() -> None:
    told = []

    async def main(clock: VirtualClock) -> None:
        watch = Watch(clock, "watch", seconds=lambda: 2.0, due=lambda item: told.append((item, clock.now())))
        for item in "ab":
            watch.add(item, ())
            await clock.sleep(5.0, ())

    with VirtualClock() as clock:
        clock.run(main(clock))
    assert told == [("a", 2.0), ("b", 7.0)]
