"""`Member`: graph servers and parameter servers of a run in one process, with their clock, transport and counters.

Within one process, one member has all servers of a run, and `InlineRun` calls its methods. In hosts, each server is a
separate member, which executes the messages of the driver (`hosts.members`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dorylax.clock import Clock
from dorylax.cost import TimeModel
from dorylax.graph.shard import AnyShard
from dorylax.pipeline.asynchrony import Asynchrony
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.driver import AbstractDriver, Driver
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.interval_data import interval_data
from dorylax.pipeline.messages import Completed, Started
from dorylax.pipeline.parameters.endpoint import ParameterWorkers
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.records import Applied
from dorylax.pipeline.placement import Placement, rows_of
from dorylax.pipeline.prepare import Job, Prepared
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Counters, Recorder, Trace
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.saved import InitialState, Saved, restore_buffers, restore_controller, save_controller
from dorylax.pipeline.stages import StageFunction, StageSizes
from dorylax.pipeline.staleness import Gate, Ledger
from dorylax.pipeline.tensor_calls import make_autotuner, make_backend, make_controller
from dorylax.pipeline.transport.base import Transport
from dorylax.pipeline.transport.delivery import Window
from dorylax.serverless.backends.base import Backend
from dorylax.store.servers import ServerMetrics


class Member:
    """Graph servers and parameter servers of a run in one process.

    Args:
        job: The model to train, and how.
        prepared: Plan of the model and its compiled functions.
        homes: Graph server of each interval of the whole graph.
        sizes: Numbers of rows per call of a stage.
        clock: Clock of the run.
        transport: Transport between servers.
        trace: Called with the span of every task; None to count only.
        times: Durations in virtual time; None on the real clock.
        window: Limit of the bytes in flight; None if messages are not copied.
        abstract: Whether values are abstract arrays.

    Attributes:
        context: State shared by the servers.
        recorder: Counters and metrics of the servers.
        hosts: Intervals of the graph servers here, in order.
    """

    def __init__(
        self,
        job: Job,
        prepared: Prepared,
        homes: tuple[int, ...],
        sizes: StageSizes,
        *,
        clock: Clock,
        transport: Transport,
        trace: Trace | None,
        times: TimeModel | None = None,
        window: Window | None = None,
        abstract: bool = False,
    ) -> None:
        config, plan = job.config, prepared.plan
        self.job, self.prepared, self.hosts = job, prepared, list[GraphHost]()
        self._parameters: ParameterServers | None = None
        self.recorder = Recorder({step.index: step.label for step in plan.steps}, trace)
        self.context = HostContext(
            plan=plan,
            sizes=sizes,
            config=config,
            homes=homes,
            copies_rows=not config.synchronous,
            asynchrony=Asynchrony.of(config),
            transport=transport,
            clock=clock,
            times=times,
            window=window,
            abstract=abstract,
        )

    def open_backend(self, resources: Resources, functions: Mapping[int, StageFunction]) -> Backend:
        """Create the backend of tensor tasks, which the caller closes.

        Args:
            resources: Numbers of threads and slots.
            functions: Compiled functions of the stages and driver tasks that run here, by task index.

        Raises:
            ConfigError: The backend cannot be used on this machine.
        """
        context = self.context
        self._resources, self._functions = resources, functions
        self._backend = make_backend(
            self.job.config,
            resources,
            self.prepared,
            functions=functions,
            clock=context.clock,
            times=context.times,
        )
        return self._backend

    def serve_graph(
        self, shard: AnyShard, values: Mapping[int, Any], gate: Gate, report: Callable[[Started | Completed], None]
    ) -> GraphHost:
        """Create a graph server and its intervals, after `open_backend`.

        Args:
            shard: The server's part of the graph.
            values: The server's data by position of the input, see `interval_data`.
            gate: Gate of the server's intervals.
            report: Reports the progress of intervals to the ledger.
        """
        job, context, resources = self.job, self.context, self._resources
        autotuner = make_autotuner(job.config, resources)
        slots = resources.slots if autotuner is None else autotuner.limit
        on_call = self.recorder.calls(shard.server)
        server = GraphServer(
            context,
            shard,
            workers=context.clock.workers(f"graph {shard.server}", resources.graph_threads),
            functions=self._functions,
            controller=make_controller(job.config, slots, self._backend, context.clock, on_call),
            autotuner=autotuner,
            gate=gate,
            recorder=self.recorder,
            placement=Placement.of(
                context.plan,
                rows_of(shard),
                sizes=context.sizes,
                config=job.config,
                cluster=job.prices,
                resources=resources,
            ),
        )
        self.hosts.append(GraphHost(server, interval_data(self.prepared, values, shard, context.sizes), report))
        return self.hosts[-1]

    def constants(self) -> list[Any]:
        """Return the values of `DriverFunctions.constants` after the steps before training, equal on every graph server."""
        free = self.hosts[0].free_values()
        return [free[var] for var in self.prepared.driver.constants]

    def driver(self, constants: Sequence[Any]) -> Driver:
        """Create the driver from a result of `constants`."""
        kind = AbstractDriver if self.context.abstract else Driver
        functions = self.prepared.driver
        values = dict(zip(functions.constants, constants, strict=True))
        return kind(self.context.plan, functions, values, streams=self.job.parts.streams, seed=self.job.seed)

    def ledger(self, epoch: int, *, fills_ghosts: bool, synchronous_from: int | None = None) -> Progress:
        """Create the ledger of a run.

        Args:
            epoch: First epoch to train.
            fills_ghosts: Whether that epoch is synchronous, because no buffers are restored.
            synchronous_from: See `Ledger`.
        """
        config = self.job.config
        ledger = Ledger(
            len(self.context.homes),
            config.staleness or 0,
            first=epoch,
            first_synchronous=fills_ghosts,
            synchronous=config.synchronous,
            synchronous_from=synchronous_from,
        )
        return Progress(ledger)

    def serve_parameters(
        self, driver: Driver, start: InitialState, progress: Progress | None, here: Sequence[int] | None = None
    ) -> ParameterServers:
        """Create parameter servers.

        Args:
            driver: Computes gradients and state that have no rows.
            start: Initial state of the servers.
            progress: Receives applied gradients; None in a process without the first server.
            here: Indices of the servers to create; None for all.
        """
        config, context = self.job.config, self.context
        self._parameters = ParameterServers(
            start,
            self.job.optimizer,
            config,
            num_intervals=len(context.homes),
            stages=context.plan.stages_with_sums,
            finish=driver.finish,
            advance=driver.advance if self.prepared.driver.changing else None,
            transport=context.transport,
            spawn=context.clock.spawn,
            on_applied=_nobody if progress is None else progress.applied,
            compute=ParameterWorkers(config.parameter_servers, context.clock, context.times, self.recorder),
            here=here,
            recorder=self.recorder,
        )
        return self._parameters

    def counted(self) -> Counters:
        """Return the counters of all servers here."""
        counters = self.recorder.counters
        hedged = sum(host.server.controller.relaunched for host in self.hosts)
        return dataclasses.replace(counters, relaunches=counters.relaunches + hedged)

    def metrics(self, epoch: int) -> list[ServerMetrics]:
        """Return the metrics of a finished epoch: graph servers, then parameter servers. Call once per epoch, in order."""
        graph = [host.server.metrics(epoch) for host in self.hosts]
        return [*graph, *([] if self._parameters is None else self._parameters.metrics(epoch))]

    def save_graph(self, epoch: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the measurements of each graph server (`save_controller`), and its counts of the next epoch."""
        return [(save_controller(host.server), host.save_counts(epoch)) for host in self.hosts]

    def restore(self, saved: Saved) -> None:
        """Restore the buffers and measurements of the graph servers here.

        Raises:
            ValueError: The saved state belongs to another pipeline.
        """
        servers = [host.server for host in self.hosts]
        restore_buffers(saved, servers)
        for server, record in zip(servers, saved.record["controllers"], strict=True):
            restore_controller(server, record)


def _nobody(applied: Applied) -> None:
    """Ignore applied gradients: only the first parameter server reports them."""
