"""Hosts as actors on a Ray cluster, which places them, watches them and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, final

from dorylax.machine import CORES
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.hosts.placement import asked, cores_of_each
from dorylax.pipeline.hosts.process import Failure
from dorylax.ray_cluster.actor import Place, make_actor
from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.errors import cause_of
from dorylax.ray_cluster.nodes import described, nodes_of
from dorylax.serverless.backends.environment import computing_environment

_HOST = "dorylax.pipeline.hosts.ray_host:RayHost"

_GONE_SECONDS = 5.0
"""For actors that were killed, and for their placement group, to be gone."""


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
        places: where each is, once it says so.
    """

    def __init__(self, ray: Any, names: Sequence[str]) -> None:
        self._ray, self._names = ray, names
        self._loop = asyncio.get_running_loop()
        self._group: Any = None
        self._actors: list[Any] = []
        self._runs: list[Any] = []
        self._closing = False
        self.places: list[Place | None] = [None for _ in names]
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
        for number, name in enumerate(self._names):
            strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=ask.places[number]
            )
            self._actors.append(
                make_actor(self._ray, _HOST, name, environment=environment, scheduling_strategy=strategy, **ask.of_each)
            )

    async def start(self, specs: Sequence[bytes], timeout: float) -> None:
        """Has them begin, and waits until all listen.

        Raises:
            HostError: one did not, or not in time.
        """
        end = self._loop.time() + timeout
        async for number, found in self._answers([actor.place.remote() for actor in self._actors], end, timeout):
            self.places[number] = place = Place(*found)
            if place.problem is not None:
                raise self._error(number, {"text": place.problem})
        begins = [
            actor.ask.remote("begin", name, spec)
            for actor, name, spec in zip(self._actors, self._names, specs, strict=True)
        ]
        endpoints = dict.fromkeys(range(len(begins)), "")
        async for number, (endpoint, problem) in self._answers(begins, end, timeout):
            if problem:
                raise self._error(number, problem)
            endpoints[number] = endpoint
        self.endpoints = [*endpoints.values()]
        for number, actor in enumerate(self._actors):
            self._runs.append(actor.ask.remote("run"))
            self._runs[-1].future().add_done_callback(self._watch(number))

    @property
    def pids(self) -> list[int]:
        """Their process ids, on their nodes."""
        return [place.pid for place in self.places if place is not None]

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
            # Where the head is gone it never returns, until Ray ends the process.
            remove = threading.Thread(target=self._ray.util.remove_placement_group, args=(group,), daemon=True)
            remove.start()
            remove.join(_GONE_SECONDS)

    async def _answers(self, references: Sequence[Any], end: float, timeout: float) -> AsyncIterator[tuple[int, Any]]:
        """What calls of the hosts give, with the host's number, as it comes."""
        waiting = {_answer(reference): number for number, reference in enumerate(references)}
        while waiting:
            done, left = await asyncio.wait(
                waiting, timeout=max(0.0, end - self._loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                late = ", ".join(self._names[waiting[future]] for future in left)
                raise HostError(f"{late}: did not begin within {timeout:g} s (ray.timeout)")
            for future in done:
                number = waiting.pop(future)
                if (error := future.exception()) is not None:
                    raise self._error(number, {"text": cause_of(error)})
                yield number, future.result()

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
        place = self.places[number]
        return Failure(**why).error(self._names[number], "" if place is None else f" on node {place.node}")


async def _answered(reference: Any, seconds: float) -> bool:
    """Whether something in the cluster is done within so many seconds."""
    done, _ = await asyncio.wait([_answer(reference)], timeout=seconds)
    return bool(done)


def _answer(reference: Any) -> asyncio.Future[Any]:
    """What comes of something in the cluster; it may be given up, and its error is then nobody's."""
    answer: asyncio.Future[Any] = asyncio.wrap_future(reference.future())
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return answer
