"""Runs of a sweep as tasks of Ray, over all nodes of a cluster.

Only this process writes the sweep's folder (`ray_worker` says why). A run whose process or node is lost is run again, from
what it last sent; what is heard of an attempt that was given up is passed over. When the sweep is stopped, so are its tasks,
as a single run is, and what they have saved comes back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from dorylax.config import RunConfig
from dorylax.durable import make_folder, write_folder
from dorylax.errors import DorylaxError
from dorylax.experiments.executors.parcel import pack, unpack
from dorylax.experiments.executors.ray_worker import (
    Answer,
    Asked,
    News,
    Surroundings,
    look_around,
    run_here,
)
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import RunOptions, directory, fail, inspect
from dorylax.experiments.sweep import Run
from dorylax.experiments.watcher import Watcher
from dorylax.machine import cores
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.runs.directory import RunDirectoryError, held
from dorylax.settings.errors import ConfigError
from dorylax.terminal.output import print_error
from dorylax.user_code.references import is_file, is_reference, place_of
from dorylax.version import __version__

_PASSED_ON = ("DORYLAX_", "JAX_", "XLA_")
_ON_RAY = "ray"
_TRIES = 5
_FIRST_PAUSE_SECONDS = 1.0  # before a lost run is run again; doubled each time
_LOOK_SECONDS = 60.0
_ROOM_SECONDS = 300.0
_GRACE_SECONDS = 60.0
_TURN_SECONDS = 0.2


@final
class ClusterLostError(DorylaxError, RuntimeError):
    """The cluster has no node any more on which runs could run."""


@contextlib.contextmanager
def ray_tasks(config: RayConfig, runs: Sequence[Run], *, jobs: int | None, cpus: int | None) -> Iterator[RayTasks]:
    """Connects to a cluster, and checks that its nodes can run the runs.

    Args:
        config: which cluster, and how long to wait for its answer.
        runs: what is to be done.
        jobs: how many at a time at most; None: as many as there is room for.
        cpus: of each run, which are the threads that it computes with; None: as many as this machine has, with which it
            gives the same bytes as here.

    Raises:
        ConfigError: there is no such cluster; a run would itself ask for room on it; no node has so many CPUs; a node is not
            set up for the sweep.
    """
    for run in runs:
        pipeline = run.config.pipeline
        if pipeline is None:
            continue
        for key, value in (("pipeline.hosts", pipeline.hosts), ("tensor.backend", pipeline.tensor.backend)):
            if value == _ON_RAY:
                raise ConfigError(
                    f"{key} = {_ON_RAY} asks for room on the cluster that --hosts ray has given to the run: leave one out"
                )
    given = cpus or cores()
    with connected(config) as ray:
        nodes = _nodes(ray)
        most = max((node["Resources"].get("CPU", 0.0) for node in nodes), default=0.0)
        if most < given:
            how = "--cpus-per-run" if cpus else "--cpus-per-run (by default this machine's cores)"
            raise ConfigError(f"{how} = {given}, but no node of the cluster has more than {most:g} CPUs: give fewer")
        names = sorted({name for run in runs for name in named_files(run.config)})
        passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        surroundings = Surroundings(__version__, str(Path.cwd()), tuple(names), passed, given)
        _check_nodes(ray, nodes, surroundings)
        room = sum(int(node["Resources"].get("CPU", 0.0) // given) for node in nodes)
        yield RayTasks(ray, surroundings, max(1, min(room, jobs or room, len(runs))), jobs or len(runs))


def named_files(config: RunConfig) -> list[str]:
    """The files and folders that a configuration names."""
    found = []
    for key, value in config.dotted().items():
        if is_reference(value) and is_file(place_of(value)):
            found.append(place_of(value))
        elif isinstance(value, str) and (key == "pipeline.partition" or value.endswith((".npz", ".yaml", ".yml"))):
            found.append(value)
    return found


def _nodes(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _check_nodes(ray: Any, nodes: Sequence[dict[str, Any]], surroundings: Surroundings) -> None:
    """Has each node with CPUs look around; one that is lost meanwhile is none of them."""
    look = ray.remote(num_cpus=0, max_retries=0)(look_around)
    looks = {
        look.options(scheduling_strategy=_pinned(node["NodeID"])).remote(surroundings): node
        for node in nodes
        if node["Resources"].get("CPU", 0.0) > 0
    }
    done, late = ray.wait(list(looks), num_returns=len(looks), timeout=_LOOK_SECONDS)
    for one in done:
        try:
            ray.get(one)
        except ray.exceptions.RayTaskError as error:
            name = looks[one]["NodeManagerHostname"]
            said = _one_line(error.cause)
            raise ConfigError(said if name in said else f"node {name} cannot run dorylax: {said}") from None
        except ray.exceptions.RayError as error:
            print_error(f"warning: node {looks[one]['NodeManagerHostname']} was lost: {_one_line(error)}")
    if late:
        name = looks[late[0]]["NodeManagerHostname"]
        raise ConfigError(f"node {name} does not answer within {_LOOK_SECONDS:g} s: take it out of the cluster")


def _pinned(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


@final
class RayTasks:
    """See `Executor`; the sweep has a folder. Made by `ray_tasks`.

    Attributes:
        at_a_time: how many runs there is room for now.
    """

    def __init__(self, ray: Any, surroundings: Surroundings, at_a_time: int, most: int) -> None:
        self.at_a_time = at_a_time
        self._ray, self._surroundings, self._most = ray, surroundings, most

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """See `Executor`.

        Raises:
            ClusterLostError: no node could run anything for some minutes.
        """
        assert folder is not None
        work = _Work(self._ray, self._surroundings, folder, watcher, options)
        todo = list(reversed(runs))
        try:
            while todo or work.busy:
                while todo and work.busy < self._most:
                    work.give(todo.pop())
                yield from work.listen()
        finally:
            work.stop()


@dataclasses.dataclass
class _Attempt:
    """A try of a run: its number, its task, and the node that it runs on, once it does."""

    run: Run
    number: int
    task: Any = None
    node: str | None = None
    due: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.run.key} {self.number}"


@final
class _Work:
    """The attempts that there are. All is done in the caller's thread; what others tell comes through a queue."""

    def __init__(
        self, ray: Any, surroundings: Surroundings, folder: Path, watcher: Watcher, options: RunOptions
    ) -> None:
        self._ray, self._surroundings, self._folder = ray, surroundings, folder
        self._watcher = watcher
        self._options = dataclasses.replace(options, kept_in=folder.absolute())
        self._attempts: dict[str, _Attempt] = {}
        self._begun: set[str] = set()
        self._came: queue.SimpleQueue[tuple[str | None, Any]] = queue.SimpleQueue()
        self._task = ray.remote(num_cpus=surroundings.threads, max_retries=0, scheduling_strategy="SPREAD")(run_here)
        here = ray.get_runtime_context().get_node_id()
        self._news = ray.remote(num_cpus=0)(News).options(scheduling_strategy=_pinned(here)).remote()
        self._hear(None, self._news.take.remote())
        self._room_seen = time.monotonic()
        self._warned = False

    @property
    def busy(self) -> int:
        return len(self._attempts)

    def give(self, run: Run) -> None:
        attempt = _Attempt(run, 1)
        self._attempts[attempt.name] = attempt

    def listen(self) -> Iterator[RunOutcome]:
        """Submits what is due, and waits a moment for something to be told."""
        for attempt in list(self._attempts.values()):
            if attempt.task is None and attempt.due <= time.monotonic():
                try:
                    self._submit(attempt)
                except RunDirectoryError as error:
                    del self._attempts[attempt.name]
                    yield self._ended(attempt.run, fail(self._folder, attempt.run, str(error)))
        self._check_room()
        for name, came in self._heard():
            if name is None:
                self._tell(came)
            elif (ended := self._attempts.pop(name, None)) is not None:
                outcome = self._outcome(ended, came)
                if outcome is not None:
                    yield self._ended(ended.run, outcome)

    def stop(self) -> None:
        """Has what runs save and end; a second signal ends it at once."""
        tasks = {one.name: one for one in self._attempts.values() if one.task is not None}
        for one in tasks.values():
            self._ray.cancel(one.task, force=False, recursive=False)
        end = time.monotonic() + _GRACE_SECONDS
        while tasks and time.monotonic() < end:
            for name, came in self._heard():
                attempt = None if name is None else tasks.pop(name, None)
                if attempt is not None and isinstance(came, Answer) and came.directory:
                    self._install(attempt.run, came.directory)
        self._ray.kill(self._news)

    # What comes from elsewhere.

    def _hear(self, name: str | None, reference: Any) -> None:
        """Puts what becomes of a task, or the news, into the queue. `ray.wait` swallows what handlers of signals raise."""
        reference.future().add_done_callback(
            lambda future: self._came.put((name, future.exception() or future.result()))
        )

    def _heard(self) -> Iterator[tuple[str | None, Any]]:
        with contextlib.suppress(queue.Empty):
            yield self._came.get(timeout=_TURN_SECONDS)
            while True:
                yield self._came.get_nowait()

    def _tell(self, news: Any) -> None:
        if isinstance(news, BaseException):  # the actor was lost: nobody hears how runs get on, and they do
            return
        self._hear(None, self._news.take.remote())
        for name, what, arguments in news:
            attempt = self._attempts.get(name)
            if attempt is None:  # over, or given up
                continue
            if what == "begins":
                (attempt.node,) = arguments
                self._begin(attempt.run)
            elif what == "saved":
                self._install(attempt.run, *arguments)
            else:
                getattr(self._watcher, what)(attempt.run, *arguments)

    # What is done.

    def _submit(self, attempt: _Attempt) -> None:
        path, begun = directory(self._folder, attempt.run), None
        if path.is_dir():
            with held(path):
                begun = pack(path)
        asked = Asked(attempt.name, attempt.run, self._options, begun, self._surroundings)
        attempt.task = self._task.remote(asked, self._news)
        self._hear(attempt.name, attempt.task)

    def _begin(self, run: Run) -> None:
        if run.key not in self._begun:
            self._begun.add(run.key)
            self._watcher.begins(run)

    def _ended(self, run: Run, outcome: RunOutcome) -> RunOutcome:
        self._begin(run)  # what it told may come later than its end
        return outcome

    def _outcome(self, attempt: _Attempt, came: Any) -> RunOutcome | None:
        """What has become of an attempt that has ended; None where the run is run again."""
        run = attempt.run
        if isinstance(came, Answer):
            try:
                if came.directory is not None:
                    self._install(run, came.directory)
            except RunDirectoryError as error:
                return fail(self._folder, run, str(error))
            if came.status == "failed":
                return fail(self._folder, run, came.error or "")
            if came.status == "done":
                found = inspect(self._folder, run)
                return found if found.error is None else fail(self._folder, run, found.error)
            why = "its process was told to end"
        elif isinstance(came, self._ray.exceptions.RayTaskError):
            return fail(self._folder, run, _one_line(came.cause))
        else:
            why = "its process or its node was lost"
            if isinstance(came, self._ray.exceptions.OutOfMemoryError):
                why = "its node was short of memory"
        where = "" if attempt.node is None else f" on {attempt.node}"
        if attempt.number == _TRIES:
            return fail(self._folder, run, f"{why}{where}, {_TRIES} times; {_one_line(came)}")
        self._begin(run)
        self._watcher.again(run, f"{why}{where}")
        pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt.number - 1)
        later = _Attempt(run, attempt.number + 1, due=time.monotonic() + pause)
        self._attempts[later.name] = later
        return None

    def _install(self, run: Run, parcel: bytes) -> None:
        path = directory(self._folder, run)
        make_folder(path.parent)
        with held(path):
            write_folder(path, lambda new: unpack(parcel, new))

    def _check_room(self) -> None:
        """Whether there is a node for what waits, if nothing runs.

        Raises:
            ClusterLostError: there has been none for too long.
        """
        now = time.monotonic()
        if now - self._room_seen < _TURN_SECONDS * 25:
            return
        cpus = self._surroundings.threads
        if any(node["Resources"].get("CPU", 0.0) >= cpus for node in _nodes(self._ray)):
            self._room_seen, self._warned = now, False
        elif now - self._room_seen > _ROOM_SECONDS:
            raise ClusterLostError(
                f"the cluster has had no node with {cpus} CPUs for {_ROOM_SECONDS:g} s: start one, and give the same command"
            )
        elif not self._warned:
            self._warned = True
            print_error(f"warning: no node of the cluster has {cpus} CPUs now: waiting for one")


def _one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__
