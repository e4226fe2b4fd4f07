from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from dorylax.clock import RealClock


def test_threads_are_named_after_the_workers():
    with RealClock() as clock:
        workers = clock.workers("graph-3", 1)
        name = clock.run(workers.run(lambda: threading.current_thread().name, seconds=0.0, order=())).value
    assert name.startswith("graph-3")


def test_slots_work_at_the_same_time():
    with RealClock() as clock:
        workers, meeting = clock.workers("graph", 2), threading.Barrier(2)

        async def main():
            await asyncio.gather(*(workers.run(lambda: meeting.wait(60), seconds=0.0, order=()) for _ in range(2)))

        clock.run(main())


def test_close_waits_for_work_that_has_begun_and_drops_the_rest():
    clock = RealClock()
    workers, begun, done = clock.workers("graph", 1), threading.Event(), []

    def work(name):
        begun.set()
        time.sleep(0.05)
        done.append(name)

    for name in "ab":
        clock.spawn(workers.run(lambda name=name: work(name), seconds=0.0, order=()))

    async def until_begun():
        await asyncio.to_thread(begun.wait)

    clock.run(until_begun())
    clock.close()
    assert done == ["a"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("graph")]


@pytest.mark.parametrize("notebook", [False, True])
def test_ctrl_c_from_the_terminal(notebook):
    clock = RealClock()

    async def pressed():
        await clock.sleep(0.01, ())
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    async def cell():
        clock.run(pressed())

    # asyncio.run would take the signal for itself.
    with closing(asyncio.new_event_loop()) as loop, pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(cell()) if notebook else clock.run(pressed())
    clock.run(clock.sleep(0.0, ()))
    clock.close()


def test_ctrl_c_while_the_thread_of_a_notebook_starts(monkeypatch):
    def interrupted(self, work):
        submit(self, work)
        raise KeyboardInterrupt

    submit = ThreadPoolExecutor.submit
    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    clock = RealClock()

    async def cell():
        clock.run(asyncio.Event().wait())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    clock.close()


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_what_is_called_later_is_called_on_the_loop(seconds):
    happened = []
    with RealClock() as clock:

        async def main():
            loop = asyncio.get_running_loop()
            clock.after(seconds, (), lambda: happened.append(asyncio.get_running_loop() is loop), name="any")
            assert not happened
            await clock.sleep(0.1, ())

        clock.run(main())
    assert happened == [True]
