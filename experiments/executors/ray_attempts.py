"""Attempts at runs on a cluster: what becomes of each, and whether the run is run again.

All is done in the caller's thread; what the cluster tells comes through a queue. An attempt is given up when its process or
node is lost, hangs, or is not heard of any more; what it says or leaves after that is passed over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, final

from dorylax.errors import DorylaxError
from dorylax.experiments.executors.parcel import pack, unpack
from dorylax.experiments.executors.ray_nodes import LOOK_SECONDS, cpus_of_nodes, node_name, one_line, pinned
from dorylax.experiments.executors.ray_worker import Answer, Asked, News, NodeError, NodeProcess, Surroundings, run_here
from dorylax.experiments.executors.silence import Silence
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import RunOptions, directory, fail, inspect
from dorylax.experiments.sweep import Run
from dorylax.experiments.watcher import Watcher
from dorylax.store.durable import make_folder, write_folder
from dorylax.store.run_directory import RunDirectoryError, held
from dorylax.terminal.output import print_error

TRIES = 5
"""Of a run that is lost each time."""

_FIRST_PAUSE_SECONDS = 1.0  # before a lost run is run again; doubled each time
_ANSWER_SECONDS = 600.0  # for a run's directory, gigabytes perhaps, to come here
_ROOM_SECONDS = 300.0
_WAITING_SECONDS = 60.0
_GRACE_SECONDS = 60.0
_NODES_SECONDS = 5.0
_TURN_SECONDS = 0.2

_Heard: TypeAlias = "Callable[[Any], RunOutcome | None]"


@final
class ClusterLostError(DorylaxError, RuntimeError):
    """The cluster has no node any more on which runs could run, or does not answer."""


@dataclasses.dataclass
class _Attempt:
    """A try of a run: its number, when it is due, its task, and the process that runs it, once one does."""

    run: Run
    number: int
    due: float = 0.0
    task: Any = None
    process: NodeProcess | None = None
    silence: Silence | None = None

    @property
    def name(self) -> str:
        return f"{self.run.key} {self.number}"

    @property
    def node(self) -> str:
        return "its node" if self.process is None else node_name(self.process.host, self.process.node)


@final
class Attempts:
    """The attempts that there are.

    Args:
        ray: the module, connected.
        surroundings: what runs need.
        folder: of the sweep.
        watcher: told of what happens.
        options: what holds for all runs.
    """

    def __init__(
        self, ray: Any, surroundings: Surroundings, folder: Path, watcher: Watcher, options: RunOptions
    ) -> None:
        self._ray, self._surroundings, self._folder = ray, surroundings, folder
        self._watcher = watcher
        self._options = dataclasses.replace(options, kept_in=folder.absolute())
        self._attempts: dict[str, _Attempt] = {}
        self._begun: set[str] = set()
        self._came: queue.SimpleQueue[tuple[_Heard, Any]] = queue.SimpleQueue()
        self._task = ray.remote(num_cpus=surroundings.threads, max_retries=0, scheduling_strategy="SPREAD")(run_here)
        self._look = ray.remote(num_cpus=0, max_retries=0)(NodeProcess.cpu_seconds)
        self._kill = ray.remote(num_cpus=0, max_retries=0)(NodeProcess.kill)
        here = pinned(ray.get_runtime_context().get_node_id())
        self._news = ray.remote(num_cpus=0, max_restarts=-1)(News).options(scheduling_strategy=here).remote()
        self._ask_at: float | None = 0.0
        self._nodes_at = self._told_nodes = self._room_seen = self._ran = time.monotonic()
        self._alive: dict[str, float] | None = None
        self._warned: set[str] = set()
        self._stopping = False

    @property
    def busy(self) -> int:
        """How many runs are under way, or wait."""
        return len(self._attempts)

    def give(self, run: Run) -> None:
        """Has it run."""
        attempt = _Attempt(run, 1)
        self._attempts[attempt.name] = attempt

    def listen(self) -> Iterator[RunOutcome]:
        """Submits what is due, waits a moment for something to be told, and looks after what tells nothing.

        Raises:
            ClusterLostError: there is no room for anything, and there was none for minutes.
        """
        self._ask()
        for attempt in list(self._attempts.values()):
            if attempt.task is None and attempt.due <= time.monotonic():
                try:
                    self._submit(attempt)
                except RunDirectoryError as error:
                    del self._attempts[attempt.name]
                    yield self._ended(attempt.run, fail(self._folder, attempt.run, str(error)))
        for hear, came in self._heard():
            if (outcome := hear(came)) is not None:
                yield self._ended(outcome.run, outcome)
        for outcome in self._given_up():
            yield self._ended(outcome.run, outcome)

    def stop(self) -> None:
        """Has what runs save and end; a second signal ends it at once."""
        self._stopping = True
        self._attempts = {one.name: one for one in self._attempts.values() if one.task is not None}
        for one in self._attempts.values():
            self._ray.cancel(one.task, force=False, recursive=False)
        end = time.monotonic() + _GRACE_SECONDS
        while self._attempts and time.monotonic() < end:
            for hear, came in self._heard():
                hear(came)
        for one in self._attempts.values():
            print_error(f"warning: {one.run.label} did not stop within {_GRACE_SECONDS:g} s on {one.node}")

    # What comes from elsewhere.

    def _hear(self, reference: Any, hear: _Heard) -> None:
        """Puts what becomes of a reference into the queue. `ray.wait` swallows what handlers of signals raise."""
        reference.future().add_done_callback(
            lambda future: self._came.put((hear, future.exception() or future.result()))
        )

    def _heard(self) -> Iterator[tuple[_Heard, Any]]:
        with contextlib.suppress(queue.Empty):
            yield self._came.get(timeout=_TURN_SECONDS)
            while True:
                yield self._came.get_nowait()

    def _ask(self) -> None:
        """Asks for news, unless that was done already."""
        if self._ask_at is not None and self._ask_at <= time.monotonic():
            self._ask_at = None
            self._hear(self._news.take.remote(), self._hear_news)

    def _hear_news(self, news: Any) -> None:
        if isinstance(news, BaseException):  # the actor was lost, and Ray starts it anew; runs go on meanwhile
            self._ask_at = time.monotonic() + 1.0
            return
        self._ask_at = 0.0
        self._ask()
        for name, what, arguments in news:
            attempt = self._attempts.get(name)
            if attempt is None:  # over, or given up
                continue
            if attempt.silence is not None:
                attempt.silence.broken(time.monotonic())
            if what == "begins":
                (attempt.process,) = arguments
                attempt.silence = Silence(time.monotonic(), LOOK_SECONDS)
                self._begin(attempt.run)
            elif what == "ends":
                attempt.silence = Silence(time.monotonic(), _ANSWER_SECONDS)
            elif what == "saved":
                with contextlib.suppress(RunDirectoryError):  # somebody reads it now; all comes in the end
                    self._install(attempt.run, *arguments)
            elif what != "alive":
                getattr(self._watcher, what)(attempt.run, *arguments)

    def _hear_end(self, attempt: _Attempt, came: Any) -> RunOutcome | None:
        """What has become of an attempt that has ended; None where the run is run again, or was given up before."""
        if self._attempts.get(attempt.name) is not attempt:
            return None
        run = attempt.run
        if isinstance(came, Answer):
            try:
                if came.directory is not None:
                    self._install(run, came.directory)
            except RunDirectoryError as error:
                del self._attempts[attempt.name]
                return fail(self._folder, run, str(error))
            if came.status == "open":
                return self._again(attempt, f"its process on {attempt.node} was told to end")
            del self._attempts[attempt.name]
            if came.status == "failed":
                return fail(self._folder, run, came.error or "")
            found = inspect(self._folder, run)
            return found if found.error is None else fail(self._folder, run, found.error)
        if isinstance(came, self._ray.exceptions.RayTaskError):
            del self._attempts[attempt.name]
            said = one_line(came.cause)
            return fail(self._folder, run, said if isinstance(came.cause, NodeError) else f"{attempt.node}: {said}")
        if isinstance(came, self._ray.exceptions.OutOfMemoryError):
            return self._again(attempt, f"{attempt.node} was short of memory")
        if isinstance(came, self._ray.exceptions.NodeDiedError):
            return self._again(attempt, f"{attempt.node} was lost")
        return self._again(attempt, f"its process on {attempt.node} was lost")

    def _hear_look(self, attempt: _Attempt, came: Any) -> RunOutcome | None:
        """The answer of a look at a process that says nothing."""
        if self._attempts.get(attempt.name) is not attempt or attempt.process is None or attempt.silence is None:
            return None
        if isinstance(came, BaseException):
            return self._again(attempt, f"{attempt.node} was lost")
        if not attempt.silence.hangs(time.monotonic(), came):
            return None
        self._kill.options(scheduling_strategy=pinned(attempt.process.node)).remote(attempt.process)
        return self._again(attempt, f"its process on {attempt.node} hung")

    # What is done.

    def _submit(self, attempt: _Attempt) -> None:
        path, begun = directory(self._folder, attempt.run), None
        if path.is_dir():
            with held(path):
                begun = pack(path)
        asked = Asked(attempt.name, attempt.run, self._options, begun, self._surroundings)
        attempt.task = self._task.remote(asked, self._news)
        self._hear(attempt.task, functools.partial(self._hear_end, attempt))

    def _begin(self, run: Run) -> None:
        if run.key not in self._begun:
            self._begun.add(run.key)
            self._watcher.begins(run)

    def _ended(self, run: Run, outcome: RunOutcome) -> RunOutcome:
        self._begin(run)  # what it told may come later than its end
        return outcome

    def _again(self, attempt: _Attempt, why: str) -> RunOutcome | None:
        """Gives an attempt up; the outcome if it was the last."""
        del self._attempts[attempt.name]
        run = attempt.run
        if self._stopping:
            return None
        if attempt.number == TRIES:
            return fail(self._folder, run, f"lost {TRIES} times; the last time {why}")
        self._begin(run)
        self._watcher.again(run, why)
        pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt.number - 1)
        later = _Attempt(run, attempt.number + 1, due=time.monotonic() + pause)
        self._attempts[later.name] = later
        return None

    def _install(self, run: Run, parcel: bytes) -> None:
        path = directory(self._folder, run)
        make_folder(path.parent)
        with held(path):
            write_folder(path, lambda new: unpack(parcel, new))

    # What is looked after.

    def _given_up(self) -> Iterator[RunOutcome]:
        """Looks at processes that are silent, and gives attempts up whose nodes are gone or do not answer."""
        now = time.monotonic()
        if now >= self._nodes_at:
            self._nodes_at = float("inf")
            # In a thread: Ray waits without end for a head that hangs, and hears no signal meanwhile.
            threading.Thread(target=self._ask_for_nodes, name="nodes of the cluster", daemon=True).start()
        if now - self._told_nodes > _ROOM_SECONDS:
            raise ClusterLostError(
                f"the head of the cluster has not answered for {_ROOM_SECONDS:g} s: see to it, and give the same command"
            )
        if now - self._told_nodes > _WAITING_SECONDS:
            self._warn("head", f"the head of the cluster has not answered for {_WAITING_SECONDS:g} s: waiting for it")
        alive, self._alive = self._alive, None
        if alive is not None:
            self._check_room(now, alive)
        for attempt in list(self._attempts.values()):
            if attempt.process is None or attempt.silence is None:
                continue
            node, why = attempt.process.node, None
            if alive is not None and node not in alive:
                why = f"{attempt.node} was lost"
            elif attempt.silence.unanswered(now):
                why = f"{attempt.node} did not answer"
            elif attempt.silence.asks_for_a_look(now):
                look = self._look.options(scheduling_strategy=pinned(node)).remote(attempt.process)
                self._hear(look, functools.partial(self._hear_look, attempt))
            if why is not None and (outcome := self._again(attempt, why)) is not None:
                yield outcome

    def _ask_for_nodes(self) -> None:
        try:
            self._came.put((self._hear_nodes, cpus_of_nodes(self._ray)))
        except Exception as error:
            self._came.put((self._hear_nodes, error))

    def _hear_nodes(self, alive: Any) -> None:
        now = time.monotonic()
        self._nodes_at = now + _NODES_SECONDS
        if isinstance(alive, BaseException):  # the head is gone, or has just come back
            return
        self._alive, self._told_nodes = alive, now
        self._warned.discard("head")

    def _check_room(self, now: float, alive: dict[str, float]) -> None:
        """Whether there is a node for what waits, and whether anything of it runs.

        Raises:
            ClusterLostError: there has been none for too long.
        """
        cpus = self._surroundings.threads
        if any(one >= cpus for one in alive.values()):
            self._room_seen = now
            self._warned.discard("node")
        elif now - self._room_seen > _ROOM_SECONDS:
            raise ClusterLostError(
                f"the cluster has had no node with {cpus} CPUs for {_ROOM_SECONDS:g} s: start one, and give the same command"
            )
        else:
            self._warn("node", f"no node of the cluster has {cpus} CPUs now: waiting for one")
        if any(attempt.process is not None for attempt in self._attempts.values()):
            self._ran = now
            self._warned.discard("room")
        elif now - self._ran > _WAITING_SECONDS:
            self._warn("room", f"nothing runs: others use the cluster's CPUs, of which a run needs {cpus} on one node")

    def _warn(self, about: str, text: str) -> None:
        """Once, until it is over."""
        if about not in self._warned:
            self._warned.add(about)
            print_error(f"warning: {text}")
