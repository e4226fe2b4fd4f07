"""Hosts as objects of one process, which are started, killed and stopped in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar, final

import numpy as np

from dorylax.clock import Clock
from dorylax.clock.base import Timed, Workers
from dorylax.clock.scope import ClockScope
from dorylax.pipeline.hosts.host import Host
from dorylax.pipeline.hosts.launcher import HostError, OnEnd
from dorylax.pipeline.hosts.spec import HostSpec
from support.simulated_hosts.network import Network, SimulatedTransport

T = TypeVar("T")

NOTICE_SECONDS = 0.02


@final
class ProcessClock(Clock):
    """Shows the time of a simulation; what its workers do takes a random time. Where the process stands still, so does this.

    Args:
        life: of the process.
        rng: draws.
        network: says when it stands still.
        endpoint: of the process.
        task_seconds: the mean of what its workers take for something.
    """

    def __init__(
        self, life: ClockScope, rng: np.random.Generator, network: Network, endpoint: str, task_seconds: float
    ) -> None:
        self.kind, self.task_seconds = life.kind, task_seconds
        self._life, self._rng, self._network, self._endpoint = life, rng, network, endpoint

    def now(self) -> float:
        """As `Clock.now`."""
        return self._life.now()

    async def sleep(self, seconds: float, order: tuple[int, ...]) -> None:
        """As `Clock.sleep`."""
        await self._life.sleep(seconds, order)
        if self._endpoint in self._network.stopped:
            await self._network.stopped.passed(self._endpoint)

    def workers(self, name: str, slots: int) -> Workers:
        """As `Clock.workers`."""
        return _Busy(self._life.workers(name, slots), self, self._rng)

    async def computed(self) -> None:
        """Waits until the process's threads get further."""
        for halted in (self._network.stalled, self._network.stopped):
            if self._endpoint in halted:
                await halted.passed(self._endpoint)

    def run(self, awaitable: Awaitable[T]) -> T:
        """As `Clock.run`."""
        return self._life.run(awaitable)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """As `Clock.spawn`."""
        return self._life.spawn(coroutine, name=name)

    def close(self) -> None:
        """As `Clock.close`."""


@final
class _Busy(Workers):
    def __init__(self, workers: Workers, clock: ProcessClock, rng: np.random.Generator) -> None:
        self.name, self.slots = workers.name, workers.slots
        self._workers, self._clock, self._rng = workers, clock, rng

    async def run(
        self, work: Callable[[], T], *, seconds: float, order: tuple[int, ...], effort: int | None = None
    ) -> Timed[T]:
        seconds += self._rng.exponential(self._clock.task_seconds)
        timed = await self._workers.run(work, seconds=seconds, order=order, effort=effort)
        await self._clock.computed()
        return timed

    async def end(self) -> None:
        await self._clock.sleep(self._rng.exponential(self._clock.task_seconds), ())  # what they have begun
        await self._clock.computed()
        await self._workers.end()


@final
class Process:
    """A host that lives, or a zombie.

    Attributes:
        transport: its.
    """

    def __init__(
        self,
        spec: HostSpec,
        network: Network,
        clock: Clock,
        rng: np.random.Generator,
        *,
        incarnation: int,
        task_seconds: float,
        on_stale: Callable[[str], None],
    ) -> None:
        self._life = ClockScope(clock)
        endpoint = f"{spec.number}/{incarnation}"
        own = ProcessClock(self._life, rng, network, endpoint, task_seconds)
        self.transport = SimulatedTransport(network, own, endpoint=endpoint, on_stale=on_stale)
        self._host = Host(spec.number, spec, own, self.transport, alone=False)

    def notice(self) -> None:
        """Tells it that it will vanish."""
        self._host.notice()

    def kill(self) -> None:
        """Ends it between two instants."""
        self.transport.close()
        self._life.cancel()


@final
class SimulatedLauncher:
    """See `Launcher` and `Launched`.

    Args:
        network: on which processes are.
        clock: of the simulation.
        rng: draws.
        incarnations: numbers, of which none was given to a process before.
        start_seconds: the most that a process takes to start.
        task_seconds: as of `ProcessClock`.
        zombies: the probability that a process which is replaced goes on, unknown to the driver.
        on_stale: as of `SimulatedTransport`.

    Attributes:
        endpoints: see `Launched`.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        rng: np.random.Generator,
        *,
        incarnations: Iterator[int],
        start_seconds: float,
        task_seconds: float,
        zombies: float,
        on_stale: Callable[[str], None],
    ) -> None:
        self._network, self._clock, self._rng, self._zombies = network, clock, rng, zombies
        self._incarnations = incarnations
        self._on_stale, self._start_seconds, self._task_seconds = on_stale, start_seconds, task_seconds
        self._specs: Sequence[HostSpec] = ()
        self._processes: dict[int, Process] = {}
        self._gone: list[Process] = []
        self.endpoints: list[str] = []

    async def launch(self, specs: Sequence[HostSpec], on_end: OnEnd) -> SimulatedLauncher:
        """See `Launcher`."""
        self._specs, self._on_end = specs, on_end
        self.endpoints = [""] * len(specs)
        await self._start(range(len(specs)))
        return self

    async def replace(self, numbers: Sequence[int]) -> None:
        """See `Launched`."""
        for number in numbers:
            if (process := self._processes.pop(number, None)) is not None:
                self._gone.append(process)
                if self._rng.random() >= self._zombies:
                    process.kill()
        await self._start(numbers)

    async def _start(self, numbers: Sequence[int]) -> None:
        seconds = self._rng.uniform(0, self._start_seconds, len(numbers))
        now = 0.0
        for place in np.argsort(seconds, kind="stable"):  # all start at once
            number = numbers[place]
            await self._clock.sleep(float(seconds[place]) - now, (number,))
            now = float(seconds[place])
            self._processes[number] = process = Process(
                self._specs[number],
                self._network,
                self._clock,
                self._rng,
                incarnation=next(self._incarnations),
                task_seconds=self._task_seconds,
                on_stale=self._on_stale,
            )
            self.endpoints[number] = process.transport.endpoint

    async def notice(self, number: int, seconds: float) -> None:
        """Tells a process, if it lives, that it will vanish, and kills it then, unless it is replaced before."""
        if (process := self._processes.get(number)) is not None:
            process.notice()
            await self._clock.sleep(seconds, (number,))
            if self._processes.get(number) is process:
                self.kill(number, told=True)

    def kill(self, number: int, *, told: bool) -> bool:
        """Kills a process, if it lives; the driver may be told of that, or has to notice."""
        process = self._processes.get(number)
        if process is None:
            return False
        process.kill()
        if told:
            delay = float(self._rng.exponential(NOTICE_SECONDS))
            self._clock.spawn(self._tell(number, process, delay), name=f"end of {number}")
        return True

    async def _tell(self, number: int, process: Process, delay: float) -> None:
        await self._clock.sleep(delay, (number,))
        if self._processes.get(number) is process:
            self._on_end(number, HostError(f"{self._specs[number].name}: killed", lost=True))

    def close(self) -> None:
        """See `Launched`."""
        for process in (*self._processes.values(), *self._gone):
            process.kill()
        self._processes.clear()
        self._gone.clear()
