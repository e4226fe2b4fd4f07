"""Training beside peers that do not belong to it: they are refused with a line in the log, and no bit of the run changes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import zmq
from support.faults import Faulty, wrap_workers
from support.leftovers import nothing_left
from support.local_runs import Run, Undisturbed, check, config, running, undisturbed_run
from support.processes import until
from support.strangers import stranger

from dorylax.net import frames
from dorylax.net.connections import Capacity, raise_limit
from dorylax.net.keys import WORKERS, RunKeys, identify
from dorylax.net.server import DataServer
from dorylax.serverless.task import TaskKey
from dorylax.serverless.wire import names

EPOCHS = 3
MOST_EPOCHS = 20  # of all tests of a transport together

pytestmark = pytest.mark.usefixtures("one_compilation")


@pytest.fixture(scope="module")
def undisturbed(one_compilation: None) -> Undisturbed:
    """What a run with nothing wrong was; it has ended before the others begin, which look for what they leave behind."""
    with undisturbed_run() as after:
        states = after(MOST_EPOCHS)
    return lambda epochs: states[:epochs]


class Visited:
    """A run in which intruders are about."""

    def __init__(self, run: Run, faulty: Faulty, keys: RunKeys) -> None:
        self.run, self.faulty, self.keys = run, faulty, keys
        self.data: DataServer = run.backend._data
        self.addresses = tuple(end.address for end in (*run.backend._graph, *run.backend._parameters))

    def train(self) -> None:
        for _ in range(EPOCHS):
            self.run.train()

    def restart_workers(self) -> None:
        """Kills them: those that come know nothing, and write to the standard error of this test."""
        for pid in self.faulty.inner.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module", params=["ipc", "tcp"])
def visited(request: pytest.FixtureRequest, undisturbed: Undisturbed) -> Iterator[Visited]:
    """One run for all tests of a transport; each goes on with it."""
    with nothing_left(), pytest.MonkeyPatch.context() as patch:
        made = wrap_workers(patch, {})
        found: list[RunKeys] = []
        make = RunKeys.make
        patch.setattr(RunKeys, "make", lambda: found.append(make()) or found[-1])
        with running(config(transport=request.param, relaunches=0)) as run:
            run.train()
            yield Visited(run, made[0], found[0])


@pytest.fixture(autouse=True)
def same_bits(visited: Visited, undisturbed: Undisturbed) -> Iterator[None]:
    yield
    check(visited.run, undisturbed)


class Intruder(threading.Thread):
    """Does something again and again while the run goes on."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__(name="intruder")
        self._act, self._enough = act, threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._enough.wait(0.002):
                self._act()
        except BaseException as error:  # told by `__exit__`
            self.error = error

    def __enter__(self) -> Intruder:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join()
        if self.error is not None:
            raise self.error


@contextlib.contextmanager
def peers(addresses: Sequence[str], keys: RunKeys | None) -> Iterator[list[zmq.Socket[bytes]]]:
    """A connection to each address, with these keys or without any."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []
    for address in addresses:
        sockets.append(context.socket(zmq.DEALER))
        sockets[-1].linger = 0
        if keys is not None:
            identify(sockets[-1], keys, WORKERS, address)
        sockets[-1].connect(address)
    try:
        yield sockets
    finally:
        for socket in sockets:
            socket.close()
        context.term()


def send(socket: zmq.Socket[bytes], message: Sequence[Any]) -> None:
    while socket.poll(0):  # an intruder that does not read would only hear less
        socket.recv_multipart()
    with contextlib.suppress(zmq.Again):
        socket.send_multipart(message, zmq.NOBLOCK)


def forged_results(visited: Visited) -> list[list[Any]]:
    """Puts of nonsense under the names of all results that the run is going to expect."""
    epoch = len(visited.run.states)
    keys = [TaskKey(e, k, stage, 0) for e in range(epoch, epoch + EPOCHS) for k in range(6) for stage in (1, 5)]
    forged = [np.full((10, 3), 1e6, np.float32)]
    return [
        frames.bundle([frames.letter(1, ["put"], name, forged)])
        for key in keys
        for name in (names.result_rows(key), names.result_sums(key))
    ]


@pytest.mark.parametrize("who", ["nobody", "a worker of another run", "another worker"])
def test_peers_without_the_run_s_key_put_nothing(visited: Visited, caplog: pytest.LogCaptureFixture, who: str) -> None:
    other = RunKeys.make()
    keys = {
        "nobody": None,
        "a worker of another run": other,
        "another worker": dataclasses.replace(
            visited.keys, token=other.token, worker_public=other.worker_public, worker_secret=other.worker_secret
        ),
    }[who]
    before = visited.data.counters
    forged = forged_results(visited)

    def act() -> None:
        # New ones each time: who was turned away once does not try again, and its line may have been one too many.
        with peers(visited.addresses, keys) as sockets:
            for socket in sockets:
                for message in forged:
                    send(socket, message)
            time.sleep(0.05)

    with Intruder(act):
        visited.train()
        until(lambda: "refused at" in caplog.text)
    after = visited.data.counters
    assert after.refused > before.refused
    steps = [step for step in visited.run.prepared.plan.epoch if step.on_worker]
    kinds = sum(len({target.target == "sums" for target in step.targets}) for step in steps)
    assert after.puts - before.puts == EPOCHS * 6 * kinds  # the workers' own, and none was late or came twice
    assert (after.late, after.duplicates) == (before.late, before.duplicates)


def test_strangers_who_only_hold_connections_are_cut_and_new_workers_get_in(visited: Visited) -> None:
    capacity = Capacity.of(raise_limit())
    with contextlib.ExitStack() as stack:
        for number in range(capacity.strangers + 100):
            stack.enter_context(stranger(visited.addresses[number % len(visited.addresses)]))
        visited.restart_workers()
        visited.train()
        # Each worker has one to each endpoint; those of the workers before may still be counted.
        assert len(visited.data._sockets.watch.connections) <= capacity.strangers + 4 * len(visited.addresses)
