from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.clock import RealClock, VirtualClock
from dorylax.serverless.controller import SlotLimit

CLOCKS = {"real": RealClock, "virtual": VirtualClock}


async def settle() -> None:
    """Lets everything run that is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", CLOCKS)
def test_first_come_first_served_and_spare_slots_last(kind: str) -> None:
    limit, came = SlotLimit(1), []

    async def take(name: str, *, spare: bool) -> None:
        await (limit.acquire(spare=True) if spare else limit.acquire())
        came.append(name)

    async def main() -> None:
        await limit.acquire()
        waiting = []
        for name, spare in (("spare 0", True), ("a", False), ("spare 1", True), ("b", False)):
            waiting.append(asyncio.ensure_future(take(name, spare=spare)))
            await settle()
        assert len(limit._queue) == 2
        for k in range(4):
            assert len(came) == k
            assert not limit.try_acquire()
            limit.release()
            await settle()
        await asyncio.gather(*waiting)
        limit.release()

    with CLOCKS[kind]() as clock:
        clock.run(main())
    assert came == ["a", "b", "spare 0", "spare 1"]
    assert limit.taken == 0


def test_fewer_slots_take_nothing_away_and_more_are_handed_out_at_once() -> None:
    limit, held = SlotLimit(3), []

    async def take(name: int) -> None:
        await limit.acquire()
        held.append(name)

    async def main() -> None:
        tasks = [asyncio.ensure_future(take(k)) for k in range(6)]
        await settle()
        assert held == [0, 1, 2]
        limit.set(1)
        assert limit.taken == 3
        for _ in range(2):  # they only bring it down to the new limit
            limit.release()
            await settle()
        assert held == [0, 1, 2]
        limit.release()
        await settle()
        assert held == [0, 1, 2, 3]
        limit.set(3)
        await asyncio.gather(*tasks)

    with VirtualClock() as clock:
        clock.run(main())
    assert held == list(range(6))


@pytest.mark.parametrize("spare", [False, True])
def test_cancelled_in_the_moment_of_its_turn_it_hands_on(spare: bool) -> None:
    limit = SlotLimit(1)

    async def main() -> None:
        await limit.acquire()
        first = asyncio.ensure_future(limit.acquire(spare=spare))
        second = asyncio.ensure_future(limit.acquire(spare=spare))
        await settle()
        limit.release()  # the first has been handed the slot but has not run yet
        first.cancel()
        await second
        assert first.cancelled()
        assert limit.taken == 1

    with VirtualClock() as clock:
        clock.run(main())


def test_who_is_cancelled_before_its_turn_is_passed_over() -> None:
    limit = SlotLimit(1)

    async def main() -> None:
        await limit.acquire()
        first = asyncio.ensure_future(limit.acquire())
        second = asyncio.ensure_future(limit.acquire())
        await settle()
        first.cancel()  # it still stands in the queue: its task has not run since
        limit.release()
        await second
        assert limit.taken == 1

    with VirtualClock() as clock:
        clock.run(main())


def test_nobody_who_has_left_stays_in_a_queue() -> None:
    limit = SlotLimit(1)

    async def main() -> None:
        await limit.acquire()
        for spare in (False, True):
            waiting = asyncio.ensure_future(limit.acquire(spare=spare))
            await settle()
            waiting.cancel()
            await settle()
        assert (len(limit._queue), len(limit._spare_queue)) == (0, 0)
        limit.release()
        assert limit.try_acquire()

    with VirtualClock() as clock:
        clock.run(main())


@pytest.mark.parametrize("make", [lambda: SlotLimit(0), lambda: SlotLimit(1).set(0)])
def test_a_limit_has_slots(make: object) -> None:
    with pytest.raises(ValueError, match="at least 1 slot, got 0"):
        make()


def test_a_cap_keeps_slots_back_whatever_their_number() -> None:
    limit = SlotLimit(3)

    async def main() -> None:
        tasks = [asyncio.ensure_future(limit.acquire()) for _ in range(9)]
        await settle()
        for cap, slots, taken in ((0, 4, 3), (4, 2, 4), (5, 8, 5), (None, 8, 8)):
            limit.cap(cap)
            limit.set(slots)
            await settle()
            assert limit.taken == taken
        limit.cap(0)
        assert not limit.try_acquire()
        limit.release()
        assert limit.taken == 7
        limit.cap(None)
        await asyncio.gather(*tasks)

    with VirtualClock() as clock:
        clock.run(main())


def test_a_cap_is_no_negative_number() -> None:
    with pytest.raises(ValueError, match="capped at ≥ 0 slots or None, got -1"):
        SlotLimit(1).cap(-1)


def test_a_slot_is_given_back_once() -> None:
    with pytest.raises(RuntimeError, match="none is taken"):
        SlotLimit(2).release()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["acquire", "spare", "try", "release", "settle"])),
        st.tuples(st.just("set"), st.integers(1, 4)),
        st.tuples(st.just("cap"), st.none() | st.integers(0, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
    ),
    max_size=40,
)


@given(st.integers(1, 3), ACTIONS)
def test_slots_are_neither_lost_nor_handed_out_twice(slots: int, actions: list[tuple]) -> None:
    limit, held, came = SlotLimit(slots), [0], {False: [], True: []}
    cap: int | None = None

    async def take(number: int, *, spare: bool) -> None:
        await limit.acquire(spare=spare)
        held[0] += 1
        came[spare].append(number)

    def usable() -> int:
        return limit.slots if cap is None else min(limit.slots, cap)

    async def main() -> None:
        nonlocal cap
        tasks: list[asyncio.Task[None]] = []
        for number, (action, *rest) in enumerate(actions):
            before = limit.taken
            if action in ("acquire", "spare"):
                tasks.append(asyncio.ensure_future(take(number, spare=action == "spare")))
            elif action == "try" and limit.try_acquire():
                assert before < usable()
                held[0] += 1
            elif action == "release" and held[0]:
                held[0] -= 1
                limit.release()
            elif action == "set":
                limit.set(*rest)
                assert limit.taken <= max(before, usable())
            elif action == "cap":
                (cap,) = rest
                limit.cap(cap)
                assert limit.taken <= max(before, usable())
            elif action == "cancel" and tasks:
                tasks[rest[0] % len(tasks)].cancel()
            elif action == "settle":
                await settle()
                assert limit.taken == held[0]
                assert not (limit._queue and limit.taken < usable())
        limit.cap(None)
        await settle()
        assert limit.taken == held[0]
        while not all(task.done() for task in tasks):
            assert held[0], "slots are free, but somebody waits"
            held[0] -= 1
            limit.release()
            await settle()
        assert limit.taken == held[0]

    with VirtualClock() as clock:
        clock.run(main())
    for numbers in came.values():
        assert numbers == sorted(numbers)
