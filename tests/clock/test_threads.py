"""Work on threads: where it runs, where errors go, and what threads leave behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from dorylax.clock import RealClock


def test_threads_are_started_as_they_are_needed():
    with RealClock() as clock:
        workers = clock.workers("graph", 8)

        async def one_after_another():
            return [(await workers.run(threading.get_ident, seconds=0.0, order=())).value for _ in range(20)]

        assert len(set(clock.run(one_after_another()))) == 1
        assert len([thread for thread in threading.enumerate() if thread.name.startswith("graph")]) == 1


def test_a_thread_that_cannot_be_set_up_answers_with_the_reason():
    def fail():
        raise OSError("no settings")

    with RealClock(fail) as clock:
        workers = clock.workers("graph", 1)
        for _ in range(2):
            with pytest.raises(OSError, match="no settings"):
                clock.run(workers.run(lambda: 1, seconds=0.0, order=()))


def test_what_was_given_up_before_it_began_is_not_done():
    with RealClock() as clock:
        workers, leave, done = clock.workers("graph", 1), threading.Event(), []

        async def main():
            first = asyncio.ensure_future(workers.run(leave.wait, seconds=0.0, order=()))
            second = asyncio.ensure_future(workers.run(lambda: done.append("second"), seconds=0.0, order=()))
            await asyncio.sleep(0.01)
            second.cancel()
            leave.set()
            await first
            await workers.run(lambda: done.append("third"), seconds=0.0, order=())

        clock.run(main())
    assert done == ["third"]


def test_an_idle_thread_keeps_no_arrays():
    with RealClock() as clock:
        workers = clock.workers("graph", 1)

        def use():
            rows = np.ones(8)
            found = weakref.ref(rows)
            timed = clock.run(workers.run(lambda: float(rows.sum()), seconds=0.0, order=()))
            assert timed.value == 8
            return found

        rows = use()
        until = time.monotonic() + 30
        while rows() is not None and time.monotonic() < until:  # the thread may just be on its way back to its queue
            gc.collect()
            time.sleep(0.01)
        assert rows() is None
