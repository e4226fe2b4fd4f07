"""`Pipeline`: a validated model and graph, spread over servers and intervals; `start` makes a run of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
import optax

from dorylax.clock import Clock, RealClock, VirtualClock
from dorylax.cost import Cluster
from dorylax.cost.time_model import times_of
from dorylax.graph.cutting import Cutting
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout
from dorylax.graph.shard import AnyShard
from dorylax.graph.sharded_data import homes_of, mask_counts
from dorylax.jax_internals import thread_settings
from dorylax.machine import cores
from dorylax.pipeline.asynchrony import Asynchrony
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.driver import AbstractDriver, Driver
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.interval_data import abstract_values, own_rows, stored_values
from dorylax.pipeline.on_ray import on_cluster
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Recorder, Trace
from dorylax.pipeline.resources import Resources, shares
from dorylax.pipeline.run import InlineRun, PipelineRun, drain_calls
from dorylax.pipeline.saved import Saved, restore_buffers, restore_controller
from dorylax.pipeline.setup import Beginnings, graph_host, layout_for, parameter_servers, prepared_for, prices_for
from dorylax.pipeline.stages import StageFunction, StageSizes, abstract_functions, stage_sizes
from dorylax.pipeline.staleness import Ledger
from dorylax.pipeline.tensor_calls import make_backend
from dorylax.pipeline.transport import InProcessTransport
from dorylax.pipeline.transport.in_process import modelled
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.serverless.backends.base import Backend


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """An immutable description of a training job: the model, the data and the servers.

    Attributes:
        prepared: Plan and its compiled functions.
        parts: The model.
        loss: Loss per vertex, `(output, labels) -> [V]`.
        layout: Assignment of vertices to servers and intervals; None for abstract arrays.
        pieces: Part of the graph on each server.
        rows: Rows of the data on each server (`own_rows`); None to compute on abstract arrays, for timing alone.
        num_training: Number of training vertices.
        optimizer: An optax transformation.
        config: Settings of the pipeline.
        prices: Cluster whose prices apply to runs; None for free runs.
        seed: Seed of dropout, of the partition and of virtual latencies.
    """

    prepared: Prepared
    parts: ModelParts
    loss: RowFunction
    layout: Layout | None
    pieces: tuple[AnyShard, ...]
    rows: Sequence[Mapping[str, np.ndarray]] | None
    num_training: int
    optimizer: optax.GradientTransformation
    config: PipelineConfig
    prices: Cluster | None
    seed: int

    @classmethod
    def of(
        cls,
        parts: ModelParts,
        data: Dataset,
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        *,
        loss: RowFunction = cross_entropy,
        seed: int = 0,
    ) -> Pipeline:
        """Trace and split a model, and partition and lay out its graph, without training.

        Args:
            parts: The model.
            data: The data set.
            optimizer: Any optax transformation that does not evaluate the loss itself.
            config: Settings of the pipeline.
            loss: Loss per vertex, `(output, labels) -> [V]`.
            seed: Seed of dropout, of the partition and of virtual latencies.

        Raises:
            ConfigError: The configuration does not fit the graph or the optimizer; the error names the key.
            SplitError: The model cannot be split.
        """
        prepared = prepared_for(config, parts, data, optimizer, loss)
        layout = layout_for(data.graph, config, seed)
        cutting, ids = Cutting(data.graph, layout), prepared.plan.program.reads_edges("ids", "places")
        pieces = tuple(cutting)
        further = {entry.name for entry in prepared.plan.program.traced.spec.named}
        return cls(
            prepared=prepared,
            parts=parts,
            loss=loss,
            layout=layout,
            pieces=pieces,
            rows=[own_rows(data, cutting, piece, layout.order, ids=ids, further=further) for piece in pieces],
            num_training=mask_counts(data)[0],
            optimizer=optimizer,
            config=config,
            prices=prices_for(config),
            seed=seed,
        )

    @property
    def passes(self) -> tuple[str, ...]:
        """Passes that were applied to the program."""
        return self.prepared.plan.program.passes

    def start(
        self,
        params: Tree,
        opt_state: Tree,
        state: Tree,
        *,
        epoch: int = 0,
        saved: Saved | None = None,
        trace: Trace | None = None,
    ) -> PipelineRun:
        """Create the servers, run the steps before training, and place every interval before the gate.

        Args:
            params: Parameters of the model.
            opt_state: State of the optimizer.
            state: Other state of the model.
            epoch: First epoch to train.
            saved: Result of `PipelineRun.save` at that epoch. Without it, an asynchronous run fills its ghosts with a
                synchronous epoch.
            trace: Called with the span of every task, roughly in order of their ends. With `saved`, it skips the steps
                before training, which the earlier process has traced, and times continue from there.

        Returns:
            The run; the caller closes it.

        Raises:
            ConfigError: The backend cannot be used on this machine.
            TaskFailedError: A worker could not be started.
            ValueError: The saved state belongs to another pipeline.
        """
        sizes = stage_sizes(self.pieces, self.config.edge_chunk)
        # Compilation precedes the start of the clock, from which bills are computed.
        if self.rows is None:
            functions = abstract_functions(self.prepared.plan, sizes)
        else:
            functions = self.prepared.functions(sizes, of_workers=self.config.runs_stages)
        labels = {step.index: step.label for step in self.prepared.plan.steps}
        recorder = Recorder(labels, trace if saved is None else None)
        with contextlib.ExitStack() as unfinished:
            config = unfinished.enter_context(on_cluster(self.config))
            resources = Resources.of(config, self._simulated, cores())
            # Closed last: tasks may use the backend until the clock ends them.
            backends = unfinished.enter_context(contextlib.ExitStack())
            clock = unfinished.enter_context(self._clock())
            context = self._context(clock, sizes)
            progress = Progress(self._ledger(len(context.homes), epoch, saved))
            backend = make_backend(
                config, resources, self.prepared, functions=functions, clock=clock, times=context.times
            )
            backends.callback(backend.close)
            hosts = [
                self._host(
                    context,
                    shard,
                    resources=resources,
                    functions=functions,
                    backend=backend,
                    progress=progress,
                    recorder=recorder,
                )
                for shard in self.pieces
            ]
            driver = self._prepare_hosts(clock, backend, hosts)
            parameters = parameter_servers(
                config,
                self.prepared,
                self.optimizer,
                driver,
                Beginnings(params, opt_state, state, saved, epoch),
                context=context,
                recorder=recorder,
                on_applied=progress.applied,
            )
            seconds_before = 0.0
            if saved is not None:
                if saved.record["synchronous"]:
                    progress.synchronise(parameters.synchronise)
                seconds_before = _restore(saved, clock, hosts)
                # The restored counters include the steps before training.
                recorder.go_on(saved.record, epoch, trace, seconds_before)
            for host in hosts:
                host.begin(driver, epoch)
            return InlineRun(
                config=config,
                clock=clock,
                hosts=hosts,
                parameters=parameters,
                progress=progress,
                recorder=recorder,
                prices=self.prices,
                epoch=epoch,
                begun=0.0 if saved is None else clock.now(),
                seconds_before=seconds_before,
                saved=saved,
                cleanup=unfinished.pop_all(),
            )

    @property
    def _simulated(self) -> Cluster | None:
        """The cluster that the virtual clock simulates; None on the real clock."""
        return self.prices if self.config.clock == "virtual" else None

    def _clock(self) -> Clock:
        settings = thread_settings()
        return RealClock(settings) if self._simulated is None else VirtualClock(initializer=settings)

    def _context(self, clock: Clock, sizes: StageSizes) -> HostContext:
        times = None
        if (cluster := self._simulated) is not None:
            assert isinstance(clock, VirtualClock)
            servers = self.config.servers + self.config.parameter_servers
            times = times_of(cluster, self.seed, clock, servers)
        return HostContext(
            plan=self.prepared.plan,
            sizes=sizes,
            edge_chunk=self.config.edge_chunk,
            homes=homes_of(self.pieces),
            parameter_servers=self.config.parameter_servers,
            one_at_a_time=self.config.mode == "no-pipe",
            copies_rows=not self.config.synchronous,
            asynchrony=Asynchrony.of(self.config),
            transport=InProcessTransport(clock, None if times is None else modelled(times)),
            clock=clock,
            times=times,
            abstract=self.rows is None,
        )

    def _ledger(self, num_intervals: int, epoch: int, saved: Saved | None) -> Ledger:
        return Ledger(
            num_intervals,
            self.config.staleness or 0,
            first=epoch,
            first_synchronous=saved is None or not saved.holds_buffers,
            synchronous=self.config.synchronous,
        )

    def _host(
        self,
        context: HostContext,
        shard: AnyShard,
        *,
        resources: Resources,
        functions: Mapping[int, StageFunction],
        backend: Backend,
        progress: Progress,
        recorder: Recorder,
    ) -> GraphHost:
        """Return a graph server and its intervals, connected directly to the ledger."""
        gate = Gate(progress.ledger.allowance, progress.hear)
        progress.join(gate.allow)
        if self.rows is None:
            values = abstract_values(self.prepared, shard)
        else:
            values = stored_values(self.prepared, self.rows[shard.server], shard, self.num_training)
        return graph_host(
            self.config,
            self.prepared,
            context,
            shard,
            values,
            resources=resources,
            functions=functions,
            backend=backend,
            gate=gate,
            recorder=recorder,
            report=progress.hear,
            prices=self.prices,
        )

    def _prepare_hosts(self, clock: Clock, backend: Backend, hosts: Sequence[GraphHost]) -> Driver:
        """Run the steps before training, and return the driver, which reads their results."""
        if (room := clock.run(backend.warm())) is not None:
            for host, slots in zip(hosts, shares(room, len(hosts)), strict=True):
                host.server.lower_slots(slots)

        async def prepare_all() -> None:
            for task in [task for host in hosts for task in host.prepare()]:
                await task

        clock.run(prepare_all())
        drain_calls(clock, hosts)
        kind = AbstractDriver if self.rows is None else Driver
        plan, functions, free = self.prepared.plan, self.prepared.driver, hosts[0].free_values()
        return kind(plan, functions, free, streams=self.parts.streams, seed=self.seed)


def _restore(saved: Saved, clock: Clock, hosts: Sequence[GraphHost]) -> float:
    """Restore the saved state, and return the seconds of earlier processes minus the clock's reading."""
    servers = [host.server for host in hosts]
    assert not saved.parts, "whoever reads a checkpoint for this process reads all of it"
    restore_buffers(saved, servers)
    for server, record in zip(servers, saved.record["controllers"], strict=True):
        restore_controller(server, record)
    seconds = float(saved.record["clock"])
    if isinstance(clock, VirtualClock):
        clock.jump(seconds)
        return 0.0
    return seconds - clock.now()
