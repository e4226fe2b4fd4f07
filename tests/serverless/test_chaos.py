"""Synchronous training while sandboxes die, and calls and messages go wrong: not a bit of the result may change."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from typing import Any

import pytest
from support.backends import need_emulator
from support.faults import CALL_FAULTS, Faulty, tamper, wrap_workers
from support.leftovers import nothing_left
from support.local_runs import Undisturbed, check, config, running
from support.processes import members

EPOCHS = 15

pytestmark = pytest.mark.usefixtures("one_compilation")


@pytest.fixture(params=["local", "emulator"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "emulator":
        need_emulator()
    name: str = request.param
    return name


class Killer(threading.Thread):
    """Kills processes of sandboxes at random: at any moment, that of their start among them, or a moment after some answer.

    A worker is one process; an emulated function is a supervisor, the emulator and its runtime.
    """

    def __init__(self, faulty: Faulty, kills: int, seed: int) -> None:
        super().__init__(name="killer")
        self._faulty, self._left, self._random = faulty, kills, random.Random(seed)
        self.killed: list[int] = []

    def run(self) -> None:
        while len(self.killed) < self._left:
            if self._random.random() < 0.6:
                time.sleep(self._random.uniform(0.0, 0.3))
            else:
                self._wait_for_answers(self._random.randint(1, 8))
                time.sleep(self._random.uniform(0.0, 0.01))
            self._kill()

    def _wait_for_answers(self, count: int) -> None:
        faulty = self._faulty
        with faulty.changed:
            wanted = faulty.answered + count
            faulty.changed.wait_for(lambda: faulty.answered >= wanted, timeout=30)

    def _kill(self) -> None:
        alive = sorted(members(*self._faulty.inner.pids) - set(self.killed))
        if alive:
            pid = self._random.choice(alive)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_workers_that_are_killed_at_random(
    undisturbed: Undisturbed, backend: str, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    with nothing_left():
        made = wrap_workers(monkeypatch, {})
        with running(config(backend=backend)) as found:
            killer = Killer(made[0], kills, seed=5)
            killer.start()
            while killer.is_alive() or len(found.states) < EPOCHS:
                found.train()
            killer.join()
            assert len(set(killer.killed)) == kills
            retries = found.pipeline.counters()["retries"]
            print(f"{kills} kills, {retries} calls failed, {len(found.states)} epochs")
            assert retries >= kills / 4  # the others were killed between two calls
    monkeypatch.undo()
    check(found, undisturbed)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="ipc"),
        pytest.param({"streaming": True, "transport": "tcp"}, id="streamed-tcp", marks=pytest.mark.exhaustive),
    ],
)
def test_calls_that_go_wrong(
    undisturbed: Undisturbed,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    options: dict[str, Any],
) -> None:
    """Late by 20 times, twice, replayed, lost, damaged, in another order: more than half of all calls suffer something."""
    with nothing_left():
        made = wrap_workers(monkeypatch, CALL_FAULTS, share=0.6, seed=3)
        with running(config(backend=backend, hedge_quantile=0.9, **options)) as found:
            while len(found.states) < EPOCHS:
                found.train()
            print(made[0].suffered, found.pipeline.counters())
            assert min(made[0].suffered.values()) >= 3
            assert found.pipeline.counters()["retries"] > 0
    if backend == "local":  # the emulator keeps what functions log to itself
        assert "an event is refused" in capfd.readouterr().err
    monkeypatch.undo()
    if not options:
        check(found, undisturbed)
        return
    with running(
        config(backend=backend, **options)
    ) as wanted:  # sums of two halves are other bits than sums of the whole
        while len(wanted.states) < EPOCHS:
            wanted.train()
    check(found, lambda epochs: wanted.states[:epochs])


def test_messages_that_are_doubled_and_lost(
    undisturbed: Undisturbed, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nothing_left():
        # So that a worker whose message was lost is given up soon; compiling takes much less.
        options = config(backend=backend, deadline=5.0, hedge_quantile=0.9)
        tampering = tamper(monkeypatch, share=0.15, seed=2, most_dropped=2)
        with running(options) as found:
            while len(found.states) < EPOCHS:
                found.train()
            print(tampering.suffered, found.pipeline.counters())
            assert min(tampering.suffered.values()) >= 2
            data = found.backend._data
            assert data.counters.duplicates > 0  # a put that came twice was taken once
    monkeypatch.undo()
    check(found, undisturbed)
