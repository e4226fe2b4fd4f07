from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from dorylax.pipeline.stamps import Guard, Quorum, Stamps


@pytest.mark.parametrize("seed", range(40))
def test_who_waits_is_woken_as_if_all_looked_each_time(seed: int) -> None:
    """For all blocks, or for a quorum of any weights; blocks are written together or one by one, some of them again."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 13))

    async def scenario() -> None:
        stamps = Stamps(count)
        wanted: list[tuple[int, Quorum | None]] = [(epoch, None) for epoch in range(-1, 3)]
        for _ in range(8):
            blocks = rng.choice(count, rng.integers(1, count + 1), replace=False)
            weights = rng.choice([0, 1, 2, 30], len(blocks))
            quorum = Quorum(blocks, weights, int(rng.integers(0, weights.sum() + 1)))
            wanted.append((int(rng.integers(0, 3)), quorum))
        wait = [asyncio.create_task(stamps.wait(*each)) for each in wanted]
        all_blocks = Quorum(np.arange(count), np.ones(count, int), count)

        async def woken() -> list[bool]:
            for _ in range(2):
                await asyncio.sleep(0)
            every = [(epoch, quorum or all_blocks) for epoch, quorum in wanted]
            expected = [q.weights[stamps.epochs[q.blocks] >= epoch].sum() >= q.needed for epoch, q in every]
            assert [task.done() for task in wait] == expected
            return expected

        assert (await woken())[:4] == [False] * 4  # nothing was ever written
        while stamps.epochs.min() < 2:
            written = rng.choice(count, rng.integers(1, min(count, 3) + 1), replace=False)
            later = np.clip(stamps.epochs[written] + rng.integers(0, 3, len(written)), -1, 2)
            if rng.integers(2):
                stamps.epochs[written] = later
                stamps.changed(len(written))
            else:
                for block, epoch in zip(written.tolist(), later.tolist(), strict=True):
                    if epoch > stamps.epochs[block]:
                        stamps.advance(block, epoch)
            await woken()
        await asyncio.gather(*(stamps.wait(*each) for each in wanted))  # what is there when somebody comes

    asyncio.run(scenario())


def test_who_has_given_up_is_forgotten_and_where_nothing_can_come_nothing_is_waited_for() -> None:
    async def scenario() -> None:
        await Stamps(0).wait(7)
        stamps = Stamps(1)
        gone, going, there = (asyncio.create_task(stamps.wait(1)) for _ in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert len(stamps._waiting) == 2
        going.cancel()  # and has not woken when the rows come
        stamps.epochs[0] = 1
        stamps.changed()
        await there

    asyncio.run(scenario())


def test_a_write_waits_for_readers_and_new_readers_wait_for_it():
    guard, seen = Guard(), []
    entered, leave = threading.Event(), threading.Event()

    def reader() -> None:
        with guard.reading():
            entered.set()
            leave.wait()
            seen.append("first reader")

    def late() -> None:
        with guard.reading():
            seen.append("late reader")

    first = threading.Thread(target=reader)
    first.start()
    entered.wait()
    future = guard.write(lambda: seen.append("write"))
    assert future is not None
    assert not future.done()
    second = threading.Thread(target=late)
    second.start()
    leave.set()
    first.join()
    second.join()
    assert future.result() is None
    assert seen == ["first reader", "write", "late reader"]


def test_an_error_of_a_write_goes_to_its_writer():
    guard = Guard()

    def fail() -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        guard.write(fail)
    with guard.reading():
        late = guard.write(fail)
    assert late is not None
    with pytest.raises(ValueError, match="no room"):
        late.result()
    assert guard.write(lambda: None) is None


def test_no_reader_sees_a_torn_row():
    guard, rows = Guard(), np.zeros((64, 1024))
    torn = []

    def read() -> None:
        for _ in range(200):
            with guard.reading():
                copy = rows.copy()
            torn.append(bool((copy != copy[0, 0]).any()))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    value = 0.0
    while any(thread.is_alive() for thread in readers):
        value += 1
        late = guard.write(lambda value=value: rows.fill(value))
        if late is not None:
            late.result()
    for thread in readers:
        thread.join()
    assert len(torn) == 400
    assert not any(torn)


def test_a_writer_that_gives_up_blocks_no_reader() -> None:
    guard, seen = Guard(), []
    entered, leave = threading.Event(), threading.Event()

    def reader() -> None:
        with guard.reading():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=reader)
    thread.start()
    entered.wait()
    future = guard.write(lambda: seen.append("write"))
    assert future is not None
    assert not future.cancel()  # as asyncio does when the task that waits is cancelled
    leave.set()
    thread.join()
    assert seen == ["write"]
    with guard.reading():
        pass
