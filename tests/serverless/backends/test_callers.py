"""Threads that wait for answers: how many, in which order, and that cancelled requests cost nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, Future

import pytest
from support.leftovers import nothing_left

from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.callers import Callers

LONG = 30.0


def test_so_many_at_a_time_in_order() -> None:
    lock, gate = threading.Lock(), threading.Event()
    running = most = 0
    begun: list[int] = []

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            begun.append(number)
        gate.wait(LONG)
        with lock:
            running -= 1
        return number

    with nothing_left():
        callers = Callers(3, "the functions")
        futures = [callers.submit(lambda k=k: work(k)) for k in range(9)]
        while len(begun) < 3:
            time.sleep(0.001)
        gate.set()
        assert [future.result(LONG) for future in futures] == list(range(9))
        assert most == 3
        assert begun == sorted(begun)
        callers.close(LONG)


def test_threads_start_as_they_are_needed() -> None:
    with nothing_left():
        callers = Callers(100, "the functions")
        for _ in range(20):
            callers.submit(lambda: None).result(LONG)
        assert sum(thread.name.startswith("the functions ") for thread in threading.enumerate()) <= 2
        callers.close(LONG)


def test_lowered_before_they_are_needed_there_are_fewer() -> None:
    gate = threading.Event()
    callers = Callers(5, "the functions")
    callers.lower(2)
    callers.lower(4)
    assert callers.most == 2
    futures = [callers.submit(lambda: gate.wait(LONG)) for _ in range(5)]
    assert sum(thread.name.startswith("the functions ") for thread in threading.enumerate()) == 2
    gate.set()
    assert all(future.result(LONG) for future in futures)
    callers.close(LONG)


def test_a_thread_that_the_system_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    callers = Callers(2, "the functions")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(TaskFailedError, match=r"can't start new thread for a call: lower tensor\.workers"):
            callers.submit(lambda: None)
    assert callers.submit(lambda: 7).result(LONG) == 7
    callers.close(LONG)


def test_errors_go_to_whoever_asked() -> None:
    def work() -> None:
        raise KeyboardInterrupt

    callers = Callers(1, "the functions")
    with pytest.raises(KeyboardInterrupt):
        callers.submit(work).result(LONG)
    assert callers.submit(lambda: 7).result(LONG) == 7
    callers.close(LONG)


def test_what_is_cancelled_in_the_queue_is_not_done() -> None:
    gate, done = threading.Event(), []
    callers = Callers(1, "the functions")
    first = callers.submit(lambda: gate.wait(LONG))
    second: Future[None] = callers.submit(lambda: done.append(2))
    assert second.cancel()
    gate.set()
    assert first.result(LONG)
    callers.submit(lambda: done.append(3)).result(LONG)
    assert done == [3]
    with pytest.raises(CancelledError):
        second.result(LONG)
    callers.close(LONG)


def test_closing_refuses_what_waits_and_leaves_what_runs() -> None:
    begun, gate = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait(LONG)

    callers = Callers(1, "the functions")
    running, waiting = callers.submit(work), callers.submit(lambda: None)
    assert begun.wait(LONG)
    begin = time.monotonic()
    callers.close(0.05)
    assert time.monotonic() - begin < LONG / 2
    with pytest.raises(TaskFailedError, match="events must come before that") as caught:
        waiting.result(LONG)
    assert caught.value.reason == "refused"
    with pytest.raises(TaskFailedError, match="are closed"):
        callers.submit(lambda: None)
    gate.set()
    assert running.result(LONG)
    callers.close(LONG)


def test_at_least_one() -> None:
    with pytest.raises(ValueError, match="calls at a time must be ≥ 1, got 0"):
        Callers(0, "the functions")
