"""Runs of a sweep as tasks of Ray, over all nodes of a cluster.

Only this process writes the sweep's folder (`ray_worker` says why). A run whose process or node is lost is run again, from
what it last sent (`ray_attempts`). When the sweep is stopped, so are its tasks, as a single run is, and what they have saved
comes back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from dorylax.config import RunConfig
from dorylax.experiments.executors.ray_attempts import Attempts
from dorylax.experiments.executors.ray_nodes import check_nodes, cpus_of_nodes
from dorylax.experiments.executors.ray_worker import Surroundings
from dorylax.experiments.outcome import RunOutcome
from dorylax.experiments.runner import RunOptions
from dorylax.experiments.sweep import Run
from dorylax.experiments.watcher import Watcher
from dorylax.graph.manifest import is_data_path
from dorylax.machine import cores
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.connection import connected
from dorylax.settings.errors import ConfigError
from dorylax.user_code.references import is_file, is_reference, place_of
from dorylax.version import __version__

_PASSED_ON = ("DORYLAX_", "JAX_", "XLA_")
_ON_RAY = "ray"


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
        cpus_of = cpus_of_nodes(ray)
        most = max(cpus_of.values(), default=0.0)
        if most < given:
            how = "--cpus-per-run" if cpus else "--cpus-per-run (by default this machine's cores)"
            raise ConfigError(f"{how} = {given}, but no node of the cluster has more than {most:g} CPUs: give fewer")
        names = sorted({name for run in runs for name in named_files(run.config)})
        passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        surroundings = Surroundings(__version__, str(Path.cwd()), tuple(names), passed, given)
        check_nodes(ray, surroundings)
        room = sum(int(one // given) for one in cpus_of.values())
        yield RayTasks(ray, surroundings, max(1, min(room, jobs or room, len(runs))), jobs or len(runs))


def named_files(config: RunConfig) -> list[str]:
    """The files and folders that a configuration names."""
    found = []
    for key, value in config.dotted().items():
        if not isinstance(value, str) or value.startswith("s3://"):
            continue
        if is_reference(value) and is_file(place_of(value)):
            found.append(place_of(value))
        elif (
            key == "pipeline.partition"
            or (key == "data.name" and is_data_path(value))
            or value.endswith((".yaml", ".yml"))
        ):
            found.append(value)
    return found


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
        attempts = Attempts(self._ray, self._surroundings, folder, watcher, options)
        todo = list(reversed(runs))
        try:
            while todo or attempts.busy:
                while todo and attempts.busy < self._most:
                    attempts.give(todo.pop())
                yield from attempts.listen()
        finally:
            attempts.stop()
