"""Hosts as actors on a Ray cluster, which places them, watches them and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from dorylax.machine import CORES
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.hosts.placement import asked, cores_of_each
from dorylax.pipeline.hosts.process import Failure
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.errors import cause_of
from dorylax.ray_cluster.nodes import described, nodes_of
from dorylax.serverless.backends.environment import computing_environment
from dorylax.version import __version__

_GONE_SECONDS = 5.0
"""For actors that were killed to be gone."""


class Begun(NamedTuple):
    """A host that listens.

    Attributes:
        endpoint: where.
        node: the address of its node.
        pid: of its process there.
    """

    endpoint: str
    node: str
    pid: int


@final
class RayLauncher:
    """See `Launcher`.

    Args:
        ray: the module, connected.
        config: what to ask the cluster for.
        left: CPUs that are to be left for workers.
    """

    def __init__(self, ray: Any, config: RayConfig, *, left: float) -> None:
        self._ray, self._config, self._left = ray, config, left

    async def launch(self, names: Sequence[str], specs: Sequence[bytes]) -> Actors:
        """See `Launcher`."""
        launched = Actors(self._ray, names)
        try:
            await launched.place(self._config, self._left)
            await launched.start(specs, self._config.timeout)
        except BaseException:
            launched.close()
            raise
        return launched


@final
class Actors:
    """See `Launched`.

    Args:
        ray: the module, connected.
        names: of the hosts.

    Attributes:
        begun: where each is.
    """

    def __init__(self, ray: Any, names: Sequence[str]) -> None:
        self._ray, self._names = ray, names
        self._loop = asyncio.get_running_loop()
        self._group: Any = None
        self._actors: list[Any] = []
        self._runs: list[Any] = []
        self._closing = False
        self.begun: list[Begun | None] = [None for _ in names]
        self.endpoints: Sequence[str] = ()
        self.failed: asyncio.Future[None] = self._loop.create_future()

    async def place(self, config: RayConfig, left: float) -> None:
        """Reserves what they need, and makes them there.

        Raises:
            HostError: the cluster has no room for them.
        """
        hosts = len(self._names)
        cores = config.cpus or cores_of_each(nodes_of(self._ray), hosts, config.hosts_per_node, left=left)
        ask = asked(config, hosts, cores)
        self._group = self._ray.util.placement_group(ask.bundles, strategy=ask.strategy, name="dorylax")
        if not await _answered(self._group.ready(), config.timeout):
            raise HostError(
                f"the Ray cluster has no room for {hosts} servers within {config.timeout:g} s (ray.timeout): "
                f"{ask.text}; {described(nodes_of(self._ray))}"
            )
        environment = computing_environment(cores) | {CORES: str(cores)}
        make = self._ray.remote(_host_class())
        for number, name in enumerate(self._names):
            strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=ask.places[number]
            )
            actor = make.options(
                **ask.of_each,
                name=None,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=2,  # what is asked of it while it runs
                scheduling_strategy=strategy,
                runtime_env={"env_vars": environment},
            )
            self._actors.append(actor.remote(name, sys.path, __version__))

    async def start(self, specs: Sequence[bytes], timeout: float) -> None:
        """Has them begin, and waits until all listen."""
        begins = [actor.begin.remote(spec) for actor, spec in zip(self._actors, specs, strict=True)]
        waiting = {asyncio.wrap_future(begin.future()): number for number, begin in enumerate(begins)}
        end = self._loop.time() + timeout
        while left := [future for future in waiting if not future.done()]:
            seconds = end - self._loop.time()
            if seconds <= 0:
                late = ", ".join(self._names[waiting[future]] for future in left)
                raise HostError(f"{late}: did not begin within {timeout:g} s (ray.timeout)")
            await asyncio.wait(left, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for future, number in waiting.items():
                if future.done():
                    self._take(number, future)
        self.endpoints = [begun.endpoint for begun in self.begun if begun is not None]
        for number, actor in enumerate(self._actors):
            self._runs.append(actor.run.remote())
            self._runs[-1].future().add_done_callback(self._watch(number))

    @property
    def pids(self) -> list[int]:
        """Their process ids, on their nodes."""
        return [begun.pid for begun in self.begun if begun is not None]

    def close(self) -> None:
        """See `Launched`."""
        self._closing = True
        if not self.failed.done():
            self.failed.cancel()
        actors, self._actors = self._actors, []
        group, self._group = self._group, None
        if not self._ray.is_initialized():
            return  # they have ended with the connection
        for actor in actors:
            self._ray.kill(actor)
        if self._runs:
            self._ray.wait(self._runs, num_returns=len(self._runs), timeout=_GONE_SECONDS)
            self._runs.clear()
        if group is not None:
            self._ray.util.remove_placement_group(group)

    def _take(self, number: int, future: asyncio.Future[Any]) -> None:
        if (error := future.exception()) is not None:
            raise self._error(number, {"text": cause_of(error)})
        endpoint, node, pid, problem = future.result()
        self.begun[number] = Begun(endpoint, node, pid)
        if problem:
            raise self._error(number, problem)

    def _watch(self, number: int) -> Callable[[Any], None]:
        """What is called in a thread of Ray's when a host has ended."""

        def ended(future: Any) -> None:
            error = future.exception()
            why = {"text": cause_of(error)} if error is not None else future.result() or {"text": "it ended"}
            with contextlib.suppress(RuntimeError):  # the run is over, and its loop too
                self._loop.call_soon_threadsafe(self._fail, number, why)

        return ended

    def _fail(self, number: int, why: Mapping[str, Any]) -> None:
        if not self._closing and not self.failed.done():
            self.failed.set_exception(self._error(number, why))

    def _error(self, number: int, why: Mapping[str, Any]) -> HostError:
        """For the fields of a `Failure`."""
        begun = self.begun[number]
        return Failure(**why).error(self._names[number], "" if begun is None else f" on node {begun.node}")


async def _answered(reference: Any, seconds: float) -> bool:
    """Whether something in the cluster is done within so many seconds."""
    done, _ = await asyncio.wait([asyncio.wrap_future(reference.future())], timeout=seconds)
    return bool(done)


def _host_class() -> type:
    """The class of the actors. It is sent to the nodes as it is, so that it can say where modules are found."""

    class Host:
        """A host: `begin` starts it, and `run` returns when it has ended, with what went wrong."""

        def __init__(self, name: str, places: Sequence[str], version: str) -> None:  # noqa: ARG002  (Ray shows it)
            import threading

            self._version = version
            self._ended = threading.Event()
            self._problem: dict[str, Any] | None = None
            sys.path.extend(place for place in places if place not in sys.path)

        def begin(self, content: bytes) -> tuple[str, str, int, dict[str, Any] | None]:
            """Starts it; gives its endpoint, its node's address, its process id, and what went wrong."""
            import queue
            import threading

            import ray

            from dorylax.version import __version__ as version

            node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            if version != self._version:
                problem = f"its node has dorylax {version}, the driver {self._version}: install the same"
                return "", node, os.getpid(), {"text": problem}
            told: queue.SimpleQueue[str] = queue.SimpleQueue()

            def life() -> None:
                import dataclasses

                from dorylax.pipeline.hosts.process import Failure, live

                try:
                    live(content, told.put, host=node)
                except BaseException as error:
                    self._problem = dataclasses.asdict(Failure.of(error))
                self._ended.set()
                told.put("")

            threading.Thread(target=life, name="host", daemon=True).start()
            endpoint = told.get()
            return endpoint, node, os.getpid(), None if endpoint else self._problem or {"text": "it ended"}

        def run(self) -> dict[str, Any] | None:
            """Waits until it has ended."""
            self._ended.wait()
            return self._problem

    return Host
