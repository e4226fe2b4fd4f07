"""Hosts as actors on a Ray cluster."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from dorylax.machine import CORES
from dorylax.pipeline.hosts.launcher import HostError, OnEnd
from dorylax.pipeline.hosts.process import Failure
from dorylax.pipeline.hosts.spec import HostSpec
from dorylax.ray_cluster.cluster import Node, Place, cause_of, described, make_actor, nodes_of
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.backends.environment import computing_environment

_HOST = "dorylax.pipeline.hosts.process:RayHost"

_GONE_SECONDS = 5.0
"""Time limit for the end of killed actors and their placement group."""


class Ask(NamedTuple):
    """A resource request to Ray.

    Attributes:
        bundles: Resources of each bundle, which is reserved on one node.
        strategy: Placement strategy of the bundles.
        places: Bundle of each host.
        of_each: Share of a host in its bundle, as actor options.
        text: Description of the request.
    """

    bundles: list[dict[str, float]]
    strategy: str
    places: list[int]
    of_each: dict[str, Any]
    text: str


def asked(config: RayConfig, hosts: int, cores: int) -> Ask:
    """Return the request for hosts with `cores` cores each.

    Consecutive hosts are on different nodes, so that graph servers spread before parameter servers.
    """
    one: dict[str, float] = {"CPU": cores}
    options: dict[str, Any] = {"num_cpus": cores}
    words = [f"{cores} CPU{'s' * (cores > 1)}"]
    if config.memory is not None:
        one["memory"] = options["memory"] = config.memory
        words.append(f"{config.memory / 2**30:.1f} GiB of memory")
    if config.resource is not None:
        one[config.resource] = 1
        options["resources"] = {config.resource: 1}
        words.append(f"1 {config.resource}")
    count = hosts if config.hosts_per_node is None else -(-hosts // config.hosts_per_node)
    places = [host % count for host in range(hosts)]
    bundles = [{name: value * places.count(place) for name, value in one.items()} for place in range(count)]
    text = f"each needs {' and '.join(words)}"
    if config.hosts_per_node is None:
        return Ask(bundles, "SPREAD", places, options, text)
    return Ask(bundles, "STRICT_SPREAD", places, options, f"{text}, on {count} nodes (ray.hosts_per_node)")


def cores_of_each(nodes: Sequence[Node], hosts: int, hosts_per_node: int | None, *, left: float) -> int:
    """Return the largest number of cores (≥ 1) that every host can have, without checking free resources.

    Args:
        nodes: Nodes of the cluster.
        hosts: Number of hosts.
        hosts_per_node: See `RayConfig`.
        left: CPUs reserved for workers.
    """
    every = [node.cpus for node in nodes]
    for cores in range(max(every, default=1), 1, -1):
        room = sum(min(cpus // cores, hosts_per_node or hosts) for cpus in every)
        if room >= hosts and sum(every) - hosts * cores >= left:
            return cores
    return 1


@final
class RayLauncher:
    """See `Launcher`.

    Args:
        ray: The connected module.
        config: Resources to request.
        left: CPUs reserved for workers.
    """

    def __init__(self, ray: Any, config: RayConfig, *, left: float) -> None:
        self._ray, self._config, self._left = ray, config, left

    async def launch(self, specs: Sequence[HostSpec], on_end: OnEnd) -> Actors:
        """See `Launcher`."""
        launched = Actors(self._ray, self._config, specs, on_end)
        try:
            await launched.place(self._left)
            await launched.start(range(len(specs)))
        except BaseException:
            launched.close()
            raise
        return launched


@final
class Actors:
    """See `Launched`.

    Args:
        ray: The connected module.
        config: Resources to request.
        specs: Specification of each host.
        on_end: See `Launcher`.

    Attributes:
        places: Node and process of each host, after its start.
    """

    def __init__(self, ray: Any, config: RayConfig, specs: Sequence[HostSpec], on_end: OnEnd) -> None:
        self._ray, self._config, self._on_end = ray, config, on_end
        self._names, self._specs = [one.name for one in specs], [one.to_bytes() for one in specs]
        self._loop = asyncio.get_running_loop()
        self._group: Any = None
        self._ask: Ask | None = None
        self._cores = 1
        self._actors: dict[int, Any] = {}
        self._runs: dict[int, Any] = {}
        self.places: list[Place | None] = [None for _ in specs]
        self.endpoints = [""] * len(specs)

    async def place(self, left: float) -> None:
        """Reserve the resources of all hosts.

        Args:
            left: CPUs reserved for workers.

        Raises:
            HostError: The cluster lacks resources.
        """
        hosts, config = len(self._names), self._config
        self._cores = config.cpus or cores_of_each(nodes_of(self._ray), hosts, config.hosts_per_node, left=left)
        self._ask = asked(config, hosts, self._cores)
        self._group = self._ray.util.placement_group(self._ask.bundles, strategy=self._ask.strategy, name="dorylax")
        await self._room(hosts)

    async def start(self, numbers: Sequence[int]) -> None:
        """Start hosts and wait until all of them listen.

        Raises:
            HostError: A host failed or exceeded the time limit.
        """
        ask = self._ask
        assert ask is not None
        environment = computing_environment(self._cores) | {CORES: str(self._cores)}
        for number in numbers:
            strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=ask.places[number]
            )
            self.places[number] = None
            self._actors[number] = make_actor(
                self._ray,
                _HOST,
                environment=environment,
                scheduling_strategy=strategy,
                **ask.of_each,
            )
        end = self._loop.time() + self._config.timeout
        asks = {number: self._actors[number].place.remote() for number in numbers}
        async for number, found in self._answers(asks, end):
            self.places[number] = place = Place(*found)
            if place.problem is not None:
                raise self._error(number, {"text": place.problem})
        begins = {
            number: self._actors[number].ask.remote("begin", self._names[number], self._specs[number])
            for number in numbers
        }
        async for number, (endpoint, problem) in self._answers(begins, end):
            if problem:
                raise self._error(number, problem)
            self.endpoints[number] = endpoint
        for number in numbers:
            self._runs[number] = self._actors[number].ask.remote("run")
            self._runs[number].future().add_done_callback(self._watch(number, self._actors[number]))

    async def replace(self, numbers: Sequence[int]) -> None:
        """See `Launched`. Ray reschedules the hosts of a lost node."""
        for number in numbers:
            self._runs.pop(number, None)
            if number in self._actors:  # missing after another loss without free resources
                self._ray.kill(self._actors.pop(number))
        await self._room(len(numbers))
        await self.start(numbers)

    async def _room(self, hosts: int) -> None:
        assert self._ask is not None
        if not await _answered(self._group.ready(), self._config.timeout):
            raise HostError(
                f"the Ray cluster has no room for {hosts} servers within {self._config.timeout:g} s (ray.timeout): "
                f"{self._ask.text}; {described(nodes_of(self._ray))}"
            )

    @property
    def pids(self) -> list[int]:
        """Process ids on the nodes."""
        return [place.pid for place in self.places if place is not None]

    def close(self) -> None:
        """See `Launched`."""
        (actors, self._actors), (runs, self._runs) = (self._actors, {}), (self._runs, {})
        group, self._group = self._group, None
        if not self._ray.is_initialized():
            return  # the actors end with the connection
        for actor in actors.values():
            self._ray.kill(actor)
        if runs:
            self._ray.wait(list(runs.values()), num_returns=len(runs), timeout=_GONE_SECONDS)
        if group is not None:
            # This call hangs if the head is lost.
            remove = threading.Thread(target=self._ray.util.remove_placement_group, args=(group,), daemon=True)
            remove.start()
            remove.join(_GONE_SECONDS)

    async def _answers(self, asks: Mapping[int, Any], end: float) -> AsyncIterator[tuple[int, Any]]:
        """Yield (host number, result) of calls as they complete."""
        waiting = {_answer(reference): number for number, reference in asks.items()}
        while waiting:
            done, left = await asyncio.wait(
                waiting, timeout=max(0.0, end - self._loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                late = ", ".join(self._names[waiting[future]] for future in left)
                raise HostError(f"{late}: did not begin within {self._config.timeout:g} s (ray.timeout)", lost=True)
            for future in done:
                number = waiting.pop(future)
                if (error := future.exception()) is not None:
                    raise self._lost(number, error)
                yield number, future.result()

    def _watch(self, number: int, actor: Any) -> Callable[[Any], None]:
        """Return the callback for the end of a host, which runs in a thread of Ray."""

        def ended(future: Any) -> None:
            error = future.exception()
            found = self._lost(number, error) if error is not None else self._error(number, future.result())
            with contextlib.suppress(RuntimeError):  # the loop ended with the run
                self._loop.call_soon_threadsafe(self._end, number, actor, found)

        return ended

    def _end(self, number: int, actor: Any, error: HostError) -> None:
        if self._actors.get(number) is actor:  # otherwise its end was requested
            self._on_end(number, error)

    def _lost(self, number: int, error: BaseException) -> HostError:
        """Return the error for a dead or unreachable actor."""
        return HostError(
            f"{self._names[number]}{self._where(number)}: {cause_of(error)}", lost=getattr(error, "cause", None) is None
        )

    def _error(self, number: int, why: Mapping[str, Any] | None) -> HostError:
        """Return the error for the fields of a `Failure`."""
        return Failure(**(why or {"text": "it ended"})).error(self._names[number], self._where(number))

    def _where(self, number: int) -> str:
        place = self.places[number]
        return "" if place is None else f" on node {place.node}"


async def _answered(reference: Any, seconds: float) -> bool:
    """Return whether a Ray reference completes within a time limit."""
    done, _ = await asyncio.wait([_answer(reference)], timeout=seconds)
    return bool(done)


def _answer(reference: Any) -> asyncio.Future[Any]:
    """Wrap a Ray reference in a future whose error needs no reader."""
    answer: asyncio.Future[Any] = asyncio.wrap_future(reference.future())
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return answer
