"""Executor that runs a sweep as Ray tasks on all nodes of a cluster.

Ray places the tasks, and restarts a task after the loss of its process or node. Only this process writes the sweep's folder
(`ray_worker`). When the sweep is stopped, its tasks save and end, just as a single run does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import queue
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from dorylax.config import RunConfig
from dorylax.errors import RunError, one_line
from dorylax.experiments.execution import Watcher
from dorylax.experiments.executors.ray_worker import Events, Surroundings, node_name, pack, run_here, unpack
from dorylax.experiments.runner import RunOptions, directory, ended, fail, forget_failure
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.graph.manifest import is_data_path
from dorylax.machine import cores
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.settings.errors import ConfigError
from dorylax.store.durable import make_folder, write_folder
from dorylax.store.run_directory import RunDirectoryError, held
from dorylax.terminal.output import print_error
from dorylax.user_code.references import is_file, is_reference, place_of
from dorylax.version import __version__

TRIES = 5
"""Maximum number of attempts at a run, counting losses of its process or node."""

_PASSED_ON = ("DORYLAX_", "JAX_", "XLA_")
_LOOK_SECONDS = 60.0  # timeout of the check of a node
_IDLE_SECONDS = 60.0  # time without a running run before a warning
_GRACE_SECONDS = 60.0
_TURN_SECONDS = 0.2


@contextlib.contextmanager
def ray_tasks(config: RayConfig, runs: Sequence[Run], *, jobs: int | None, cpus: int | None) -> Iterator[RayTasks]:
    """Connect to a cluster, and check that its nodes can run the runs.

    Args:
        config: Address of the cluster and its timeout.
        runs: Runs to execute.
        jobs: Maximum number of concurrent runs, or None for the cluster's capacity.
        cpus: CPUs and threads per run, or None for this machine's core count, which reproduces local results byte by byte.

    Raises:
        ConfigError: If the cluster cannot be reached, a run would itself use it, or no node can run the sweep.
    """
    for run in runs:
        for key in ("pipeline.hosts", "tensor.backend"):
            if run.config.dotted().get(key) == "ray":
                raise ConfigError(
                    f"{key} = ray asks for room on the cluster that --hosts ray has given to the run: leave one out"
                )
    given = cpus or cores()
    with connected(config) as ray:
        every = _cpus(ray)
        most = max(every.values(), default=0.0)
        if most < given:
            how = "--cpus-per-run" if cpus else "--cpus-per-run (by default this machine's cores)"
            raise ConfigError(f"{how} = {given}, but no node of the cluster has more than {most:g} CPUs: give fewer")
        names = sorted({name for run in runs for name in named_files(run.config)})
        passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        surroundings = Surroundings(__version__, str(Path.cwd()), tuple(names), passed, given)
        _check_nodes(ray, surroundings)
        room = sum(int(one // given) for one in every.values())
        yield RayTasks(ray, surroundings, max(1, min(room, jobs or room, len(runs))), jobs or len(runs))


def named_files(config: RunConfig) -> list[str]:
    """Return the files and folders referenced by a configuration."""
    found = []
    for key, value in config.dotted().items():
        if not isinstance(value, str) or value.startswith("s3://"):
            continue
        path = key == "pipeline.partition" or (key == "data.name" and is_data_path(value))
        if is_reference(value) and is_file(place_of(value)):
            found.append(place_of(value))
        elif path or value.endswith((".yaml", ".yml")):
            found.append(value)
    return found


def _cpus(ray: Any) -> dict[str, float]:
    """Return the number of CPUs of each live node, by node id."""
    return {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]}


def _pinned(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _check_nodes(ray: Any, surroundings: Surroundings) -> None:
    """Raise a ConfigError if a node with CPUs is not set up for the sweep or does not respond in time."""
    look = ray.remote(num_cpus=0, max_retries=0)(Surroundings.settle)
    names = {node["NodeID"]: node_name(node["NodeManagerHostname"], node["NodeID"]) for node in ray.nodes()}
    looks = {
        look.options(scheduling_strategy=_pinned(node)).remote(surroundings): names[node]
        for node, cpus in _cpus(ray).items()
        if cpus
    }
    done, late = ray.wait(list(looks), num_returns=len(looks), timeout=_LOOK_SECONDS)
    for one in done:
        try:
            ray.get(one)
        except ray.exceptions.RayTaskError as error:
            said = _said(error.cause)
            expected = isinstance(error.cause, RunError)
            raise ConfigError(said if expected else f"{looks[one]} cannot run dorylax: {said}") from None
        except ray.exceptions.RayError:
            print_error(f"warning: {looks[one]} was lost")
    if late:
        raise ConfigError(f"{looks[late[0]]} does not answer within {_LOOK_SECONDS:g} s: take it out of the cluster")


def _said(error: object) -> str:
    return one_line(error) or type(error).__name__


@final
class RayTasks:
    """`Executor` on a Ray cluster, created by `ray_tasks`, for sweeps with a folder. Runs in the caller's thread.

    Attributes:
        at_a_time: Number of concurrent runs that the cluster can hold.
    """

    def __init__(self, ray: Any, surroundings: Surroundings, at_a_time: int, most: int) -> None:
        self.at_a_time = at_a_time
        self._ray, self._surroundings, self._most = ray, surroundings, most
        self._came: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()  # key of the run, or "" for events
        self._running: dict[str, tuple[Run, Any]] = {}
        self._nodes: dict[str, str] = {}  # node of each started run
        self._stopped: Counter[str] = Counter()
        self._stopping = False

    def execute(
        self, runs: Sequence[Run], folder: Path | None, watcher: Watcher, options: RunOptions
    ) -> Generator[RunOutcome, None, None]:
        """Execute runs; see `Executor`. Runs wait while no node has enough free CPUs."""
        assert folder is not None
        ray, self._folder, self._watcher = self._ray, folder, watcher
        self._options, cpus = dataclasses.replace(options, kept_in=folder.absolute()), self._surroundings.threads
        self._task = ray.remote(num_cpus=cpus, max_retries=TRIES - 1, scheduling_strategy="SPREAD")(run_here)
        here = _pinned(ray.get_runtime_context().get_node_id())
        actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Events)
        self._events = actor.options(scheduling_strategy=here).remote()
        self._hear("", self._events.take.remote())
        todo, idle = list(reversed(runs)), time.monotonic()
        try:
            while todo or self._running:
                if self._running.keys() & self._nodes.keys():
                    idle = time.monotonic()
                elif time.monotonic() - idle > _IDLE_SECONDS:
                    print_error(f"warning: nothing runs: a run needs {cpus} free CPUs on one node of the cluster")
                    idle = math.inf  # one warning suffices
                while todo and len(self._running) < self._most:
                    if (outcome := self._submit(todo.pop())) is not None:
                        yield outcome
                yield from self._listen()
        finally:
            self._stop()

    def _submit(self, run: Run) -> RunOutcome | None:
        """Submit a run with the files of an earlier start. Returns its failure if another process uses them."""
        path, begun = directory(self._folder, run), None
        try:
            if path.is_dir():
                with held(path):
                    begun = pack(path)
        except RunDirectoryError as error:
            self._watcher.begins(run)
            return fail(self._folder, run, str(error))
        task = self._task.remote(run, self._options, begun, self._surroundings, self._events)
        self._running[run.key] = run, task
        self._hear(run.key, task)
        return None

    def _hear(self, key: str, reference: Any) -> None:
        """Queue the result of a reference when it is ready, since `ray.wait` would swallow exceptions of signal handlers."""
        reference.future().add_done_callback(
            lambda future: self._came.put((key, future.exception() or future.result()))
        )

    def _listen(self) -> Iterator[RunOutcome]:
        """Wait briefly for events and results, and yield the outcomes of completed runs."""
        with contextlib.suppress(queue.Empty):
            key, came = self._came.get(timeout=_TURN_SECONDS)
            while True:
                if not key:
                    self._hear_events(came)
                elif key in self._running:
                    run, _ = self._running.pop(key)
                    if (outcome := self._ended(run, came)) is not None:
                        if key not in self._nodes:  # the events may arrive after the result
                            self._watcher.begins(run)
                        yield outcome
                key, came = self._came.get_nowait()

    def _hear_events(self, came: Any) -> None:
        self._hear("", self._events.take.remote())
        for key, name, arguments in () if isinstance(came, BaseException) else came:
            if key not in self._running:
                continue
            run, _ = self._running[key]
            if name == "begins":
                number, node = arguments
                if number == 1:
                    forget_failure(self._folder, run)
                    self._watcher.begins(run)
                else:
                    self._watcher.again(run, f"its process on {self._nodes.get(key, 'its node')} was lost")
                self._nodes[key] = node
            elif name == "saved":
                with contextlib.suppress(RunDirectoryError):  # in use by a reader; the final result contains all files
                    self._install(run, *arguments)
            else:
                getattr(self._watcher, name)(run, *arguments)

    def _ended(self, run: Run, came: Any) -> RunOutcome | None:
        """Return the outcome of a task, or None for a run that is resubmitted or stopped."""
        node = self._nodes.get(run.key, "its node")
        if isinstance(came, self._ray.exceptions.RayTaskError):
            return fail(self._folder, run, _said(came.cause))
        if isinstance(came, BaseException):
            lost = f"lost {TRIES} times; the last time its process on {node} was lost"
            return None if self._stopping else fail(self._folder, run, lost)
        status, error, packed = came
        try:
            if packed is not None:
                self._install(run, packed)
        except RunDirectoryError as problem:
            status, error = "failed", str(problem)
        if status == "done":
            return ended(self._folder, run)
        if status == "failed":
            return fail(self._folder, run, error or "")
        if self._stopping:
            return None
        self._stopped[run.key] += 1  # by an external signal
        if self._stopped[run.key] < TRIES:
            return self._submit(run)
        return fail(self._folder, run, f"stopped {TRIES} times by a signal, the last time on {node}")

    def _install(self, run: Run, packed: bytes) -> None:
        path = directory(self._folder, run)
        make_folder(path.parent)
        with held(path):
            write_folder(path, lambda new: unpack(packed, new))

    def _stop(self) -> None:
        """Let the runs save and end. A second signal ends them immediately."""
        self._stopping = True
        for _, task in self._running.values():
            self._ray.cancel(task, force=False, recursive=False)
        end = time.monotonic() + _GRACE_SECONDS
        while self._running and time.monotonic() < end:
            for _ in self._listen():
                pass
        for key, (run, _) in self._running.items():
            node = self._nodes.get(key, "its node")
            print_error(f"warning: {run.label} did not stop within {_GRACE_SECONDS:g} s on {node}")
