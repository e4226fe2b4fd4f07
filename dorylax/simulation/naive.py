"""Serverless training without computation separation: every task of an epoch is a call of a function, gathers too.

The program is that of any run. Nothing stays with a graph server: servers only store rows, and each call fetches what its
interval reads, of a gather all different rows of neighbours and the edges themselves, and puts back what it writes. A step
begins once the one before it is done by all, since any row may be read next. Assumptions: rows lie on all servers alike,
so that each call loads its own server's network; a function's virtual CPU gathers as a server's thread does; a call fits
the memory of a function.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import final

import jax

from dorylax.clock import VirtualClock
from dorylax.cost import Calls, Machines, TimeModel
from dorylax.graph.shard_summary import AnyShard
from dorylax.jax_internals import Var, type_of
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.operators import Piece, row_shape
from dorylax.pipeline.plan import Step
from dorylax.pipeline.stages import StageCost, stage_cost
from dorylax.simulation.result import Simulated, Utilisation
from dorylax.simulation.run import pipeline_of
from dorylax.simulation.scenario import Scenario, ScenarioError

_INDEX, _OFFSET = 4, 8
"""Bytes of a neighbour's number, and of where a row's edges begin."""


def simulate_naive(scenario: Scenario, *, epochs: int = 3, on_epoch: Callable[[int], None] | None = None) -> Simulated:
    """What a run would take and cost whose functions do everything.

    Args:
        scenario: the run, on servers and functions.
        epochs: how many to simulate, ≥ 1; no more than the run has.
        on_epoch: called after each epoch with how many there have been.

    Raises:
        ScenarioError: the model sums over out-edges what in-edges hold, or the cluster has no functions.
        ConfigError, SplitError, ValueError, OSError: as `simulate`.
    """
    made, _ = pipeline_of(scenario, scenario.pipeline)
    if not scenario.cluster.functions:
        raise ScenarioError(f"{scenario.name} has no functions, which would do everything: give cluster.functions")
    clock = VirtualClock()
    with clock:
        functions = _Functions(scenario, made, clock)
        plan = made.prepared.plan
        prepare = clock.run(functions.do(plan.once))
        calls, seconds = [functions.take()], list[float]()
        for epoch in range(min(epochs, scenario.config.train.epochs)):
            seconds.append(clock.run(functions.do(plan.epoch)) + functions.update(epoch))
            calls.append(functions.take())
            if on_epoch is not None:
                on_epoch(epoch + 1)
    pipeline = scenario.pipeline
    busy = functions.busy / ((prepare + sum(seconds)) * pipeline.servers * functions.slots)
    return Simulated(
        name=scenario.name,
        backend="functions",
        cluster=scenario.cluster,
        servers=pipeline.servers,
        parameter_servers=pipeline.parameter_servers,
        intervals=pipeline.intervals,
        prepare=prepare,
        epochs=tuple(seconds),
        settling=1,
        calls=tuple(calls),
        total_epochs=scenario.config.train.epochs,
        tasks=(),
        utilisation=Utilisation(0.0, busy, 0.0),
    )


@final
class _Functions:
    """Those of all servers, `slots` at a time for each, which have been `busy` for so many seconds."""

    def __init__(self, scenario: Scenario, made: Pipeline, clock: VirtualClock) -> None:
        self._clock, self._shards = clock, made.pieces
        servers = scenario.pipeline.servers + scenario.pipeline.parameter_servers
        self._machines = Machines(scenario.cluster, clock, servers) if scenario.cluster.contention else None
        self._times = TimeModel(scenario.cluster, scenario.config.train.seed, self._machines)
        self._cluster, self.slots = scenario.cluster, scenario.pipeline.tensor.slots or scenario.cluster.functions
        self._weights = sum(leaf.nbytes for leaf in jax.tree.leaves(made.parts.params))
        self._numbers, self._calls = count(), Calls()
        self.busy = 0.0

    def take(self) -> Calls:
        """The calls since it was last asked."""
        found, self._calls = self._calls, Calls()
        return found

    def update(self, epoch: int) -> float:
        """Seconds of the optimizer's step."""
        seconds = self._times.update((epoch,), bytes=self._weights)
        assert isinstance(seconds, float)  # nobody else is on the parameter server
        return seconds

    async def do(self, steps: tuple[Step, ...]) -> float:
        """Does steps, one after the other by all; gives the seconds that they take."""
        begun = self._clock.now()
        for step in steps:
            lanes = [
                self._lane(step, shard, intervals)
                for shard in self._shards
                for intervals in [iter(range(len(shard.bounds) - 1))]
                for _ in range(self.slots)
            ]
            await asyncio.gather(*lanes)
        return self._clock.now() - begun

    async def _lane(self, step: Step, shard: AnyShard, intervals: Iterator[int]) -> None:
        """A function that takes whichever interval of a server is next."""
        for interval in intervals:
            cost, key = self._cost(step, shard, interval), (next(self._numbers),)
            cold, environments = False, None
            if self._machines is not None:
                environments = self._machines.environments(shard.server)
                cold = environments.begin(self._clock.now())
            duration = self._times.tensor_task(
                key,
                flops=cost.flops,
                bytes_in=cost.bytes_in,
                bytes_out=cost.bytes_out,
                server=shard.server,
                cold=cold,
            )
            begun = self._clock.now()
            await self._clock.sleep(duration, key)
            if environments is not None:
                environments.end(self._clock.now())
            self._calls.add(self._clock.now() - begun)
            self.busy += self._clock.now() - begun

    def _cost(self, step: Step, shard: AnyShard, interval: int) -> StageCost:
        rows = shard.bounds[interval + 1] - shard.bounds[interval]
        entries = shard.edge_bounds[interval + 1] - shard.edge_bounds[interval]
        if step.kind == "stage":
            return stage_cost(step, rows if step.space == "vertex" else entries)
        if step.kind != "gather":
            raise ScenarioError(
                f"naive serverless training has no {step.label} ({step.kind}): give a model that gathers"
            )
        piece = Piece(step, 0, rows, entries)
        different = int(shard.block_counts(step.side, interval).sum())
        read = sum(
            _row_bytes(operand.var) * {"own": rows, "edge": entries}.get(operand.role, different)
            for operand in step.operands
        )
        written = sum(_row_bytes(var) for var in step.writes) * (rows if step.space == "vertex" else entries)
        # Reading along edges takes memory's time and not arithmetic's: as many operations as take as long.
        along = piece.bytes / self._cluster.graph_server.memory_bandwidth * self._cluster.function.flops
        return StageCost(piece.flops + int(along), read + _INDEX * entries + _OFFSET * rows, written, read)


def _row_bytes(var: Var) -> int:
    return math.prod(row_shape(var)) * int(type_of(var).dtype.itemsize)
