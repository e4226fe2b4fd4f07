"""A graph host: one graph server, the gate before its epochs, and the coroutines of its intervals.

Each interval runs `_live`, a loop: enter the gate, pull weights, run the steps of the plan, and wait for acknowledgements.
No scheduler decides which tasks overlap; the overlap follows from the awaits of the coroutines.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from dorylax.jax_internals import Var
from dorylax.pipeline.driver import Driver
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.messages import Completed, Started
from dorylax.pipeline.places import note_place
from dorylax.pipeline.steps import RUN
from dorylax.program.rows.types import Free, Summed
from dorylax.program.tasks.steps import Step

_LOG = logging.getLogger(__name__)


class Intervals:
    """The intervals of one graph server.

    Args:
        server: The graph server.
        constants: Data of each interval by variable; `prepare` adds the results of the steps before training.
    """

    def __init__(self, server: GraphServer, constants: Sequence[dict[Var, Any]]) -> None:
        self.server = server
        self._constants = constants
        self._plan, self._clock = server.context.plan, server.context.clock
        inputs = set(self._plan.program.traced.step.jaxpr.invars)
        self._rows_of_once, self._unprepared = self._plan.rows_of_once, server.num_intervals
        self._of_data = [k for k, entry in enumerate(self._plan.publications) if entry.var in inputs]

    def prepare(self) -> list[asyncio.Task[None]]:
        """Start the work before training: publish data that are read through edges, and run the plan's `once` steps.

        Values that only these steps read are freed afterwards.
        """
        return self._spawn(self._prepare)

    def free_values(self) -> dict[Var, Any]:
        """Return the constant values without rows; complete after `prepare`, and equal on every host."""
        types, first = self._plan.program.analysis.types, self._constants[0]
        return {var: value for var, value in first.items() if isinstance(types[var], Free | Summed)}

    def _spawn(self, life: Callable[[int, int], Any]) -> list[asyncio.Task[None]]:
        first = self.server.first_interval
        return [
            self._clock.spawn(life(interval, first + interval), name=f"interval {first + interval}")
            for interval in range(self.server.num_intervals)
        ]

    async def _prepare(self, interval: int, number: int) -> None:
        current = IntervalPass(interval, number, -1, -1, (), {}, self._constants[interval])
        for publication in self._of_data:
            await self.server.publish(publication, current)
        await self._run_all(self._plan.once, current)
        constants = self._constants[interval]
        constants.update(current.values)
        for var in self._rows_of_once:
            constants.pop(var, None)
        self._unprepared -= 1
        if not self._unprepared:
            self.server.release()

    async def _run_all(self, steps: Sequence[Step], current: IntervalPass) -> None:
        """Run the steps of a pass, and wait until its messages are acknowledged."""
        for step in steps:
            await self._run(step, current)
        await self.server.finish(current)

    async def _run(self, step: Step, current: IntervalPass) -> None:
        """Run one step of an interval and publish its results.

        Boundary rows and gradients may still be in flight on return (`IntervalPass.pending`).
        """
        try:
            await RUN[step.kind](self.server, step, current)
            for number in step.publishes:
                await self.server.publish(number, current)
            if step.sums and current.epoch >= 0:
                await self.server.push(step, current)
        except Exception as error:
            note_place(error, current.place(self.server.shard.server, step.label))
            raise
        for var in step.forget:
            current.values.pop(var, None)


@final
class GraphHost(Intervals):
    """The intervals of one graph server during training.

    Args:
        server: The graph server.
        constants: Data of each interval, see `Intervals`.
        report: Reports the progress of intervals to the ledger.
    """

    def __init__(
        self, server: GraphServer, constants: Sequence[dict[Var, Any]], report: Callable[[Started | Completed], None]
    ) -> None:
        super().__init__(server, constants)
        self._report = report
        self._waiting: dict[int, float] = {}  # intervals at the gate, with the start of their uncounted wait

    def begin(self, driver: Driver, epoch: int) -> None:
        """Start training on all intervals, which enter the gate.

        Args:
            driver: Computes the values without rows.
            epoch: First epoch to train.
        """
        self._spawn(lambda interval, number: self._live(interval, number, driver, epoch))

    def save_counts(self, epoch: int) -> dict[str, Any]:
        """Return the counts of an epoch that no interval has started, for `EpochCounts.restore`.

        Args:
            epoch: Next epoch of all intervals.
        """
        counts, now = self.server.counts.of(epoch), self._clock.now()
        for number in sorted(self._waiting):  # in order of admission
            counts.gate_seconds += now - self._waiting[number]
            self._waiting[number] = now
        return dataclasses.asdict(counts)

    async def _live(self, interval: int, number: int, driver: Driver, epoch: int) -> None:
        server = self.server.shard.server
        while True:
            await self._enter(number, epoch)
            await self.server.pause(epoch, number)
            begin = self._clock.now()
            pulled = await self.server.parameters.pull(number, epoch)
            self.server.counts.of(epoch).weights_seconds += self._clock.now() - begin
            values = driver.values(pulled, epoch)
            weights = tuple(jax.tree.leaves(pulled.params))
            constants = self._constants[interval]
            current = IntervalPass(
                interval,
                number,
                epoch,
                pulled.version,
                weights,
                values,
                constants,
                ahead=pulled.ahead,
                exact=pulled.exact,
            )
            _LOG.debug("%s", current.place(server, f"with weights of version {pulled.version}"))
            await self._run_all(self._plan.epoch, current)
            del current, pulled, weights, values  # free rows and weights at the end of the epoch
            self._report(Completed(number, epoch))
            epoch += 1

    async def _enter(self, number: int, epoch: int) -> None:
        self._waiting[number] = self._clock.now()
        await self.server.gate.enter(number, epoch)
        self.server.counts.of(epoch).gate_seconds += self._clock.now() - self._waiting.pop(number)
