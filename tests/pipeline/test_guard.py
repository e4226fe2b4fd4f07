"""Readers in threads, a writer that never blocks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dorylax.pipeline.stamps import Guard


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
