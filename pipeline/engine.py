"""`Pipeline`: a model, a graph and how they are spread over servers and intervals, checked; `start` makes a run of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import final

import optax

from dorylax.clock import Clock, RealClock, VirtualClock
from dorylax.cost import Cluster, Machines, TimeModel
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
from dorylax.pipeline.driver import DrivesEpochs
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.interval_data import own_rows, reads_edge_ids
from dorylax.pipeline.on_ray import on_cluster
from dorylax.pipeline.placement import Placement, rows_of
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Recorder, Trace
from dorylax.pipeline.resources import Resources, shares
from dorylax.pipeline.run import InlineRun, PipelineRun, drain_calls
from dorylax.pipeline.saved import Saved, restore_buffers, restore_controller
from dorylax.pipeline.setup import Beginnings, layout_for, parameter_servers, prepared_for, prices_for
from dorylax.pipeline.stages import StageFunction, StageSizes, stage_sizes
from dorylax.pipeline.staleness import Ledger
from dorylax.pipeline.tensor_calls import make_autotuner, make_backend, make_controller
from dorylax.pipeline.transport import InProcessTransport
from dorylax.pipeline.transport.in_process import modelled
from dorylax.pipeline.values import Numbers, Values
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.serverless.backends.base import Backend


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """What is to be trained, and on which servers; nothing in it changes.

    Attributes:
        prepared: the plan and its compiled functions.
        parts: the model.
        loss: `(output, labels) -> [V]`.
        layout: which vertices are whose; None where nobody knows, since values are hollow.
        pieces: each server's part of the graph.
        values: what servers compute with.
        optimizer: an optax transformation.
        config: how to run.
        prices: what runs are billed as; None where they cost nothing.
        seed: of dropout, of the partition and of virtual latencies.
    """

    prepared: Prepared
    parts: ModelParts
    loss: RowFunction
    layout: Layout | None
    pieces: tuple[AnyShard, ...]
    values: Values
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
        """Traces and splits the model, partitions and lays out the graph; nothing is trained.

        Args:
            parts: the model.
            data: the data set.
            optimizer: any optax transformation that does not evaluate the loss itself.
            config: how to run.
            loss: `(output, labels) -> [V]`.
            seed: of dropout, of the partition and of virtual latencies.

        Raises:
            ConfigError: the configuration does not fit the graph or the optimizer; names the key.
            SplitError: the model cannot be split.
        """
        prepared = prepared_for(config, parts, data, optimizer, loss)
        layout = layout_for(data.graph, config, seed)
        cutting, ids = Cutting(data.graph, layout), reads_edge_ids(prepared)
        pieces = tuple(cutting)
        further = {entry.name for entry in prepared.plan.program.traced.spec.named}
        rows = [own_rows(data, cutting, piece, layout.order, ids=ids, further=further) for piece in pieces]
        return cls(
            prepared=prepared,
            parts=parts,
            loss=loss,
            layout=layout,
            pieces=pieces,
            values=Numbers(prepared, rows, mask_counts(data)[0], streams=parts.streams, seed=seed),
            optimizer=optimizer,
            config=config,
            prices=prices_for(config),
            seed=seed,
        )

    @property
    def passes(self) -> tuple[str, ...]:
        """Those of the program."""
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
        """Makes the servers, computes what is computed once, and puts every interval before the gate.

        Args:
            params: parameters.
            opt_state: the optimizer's state.
            state: the model's other state.
            epoch: the first that is trained.
            saved: what `PipelineRun.save` gave at that epoch; without it, an asynchronous run fills its ghosts by a
                synchronous epoch.
            trace: called with the span of every task, about in the order in which they end. With `saved`, what is computed
                once is left out, which the process before has traced, and times go on from there.

        Returns:
            The run, to be closed by whoever asked for it.

        Raises:
            ConfigError: the backend cannot be used on this machine.
            InvokeError: a worker could not be started.
            ValueError: what was saved is another pipeline's.
        """
        sizes = stage_sizes(self.pieces, self.config.edge_chunk)
        # Compiled before the clock starts: bills are read from it.
        functions = self.values.functions(sizes, of_workers=self.config.runs_stages)
        labels = {step.index: step.label for step in self.prepared.plan.steps}
        recorder = Recorder(labels, trace if saved is None else None)
        with contextlib.ExitStack() as unfinished:
            config = unfinished.enter_context(on_cluster(self.config))
            resources = Resources.of(config, self._simulated, cores())
            # Closed last: tasks may use the backend until the clock has ended them.
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
                recorder.go_on(saved.record, epoch, trace, seconds_before)  # what is computed once was counted then
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
        """What the virtual clock stands for; None on the real one."""
        return self.prices if self.config.clock == "virtual" else None

    def _clock(self) -> Clock:
        settings = thread_settings()
        return RealClock(settings) if self._simulated is None else VirtualClock(initializer=settings)

    def _context(self, clock: Clock, sizes: StageSizes) -> HostContext:
        times = None
        if (cluster := self._simulated) is not None:
            assert isinstance(clock, VirtualClock)
            servers = self.config.servers + self.config.parameter_servers
            times = TimeModel(cluster, self.seed, Machines(cluster, clock, servers) if cluster.contention else None)
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
            hollow=self.values.hollow,
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
        """A graph server and its intervals, wired directly to the ledger."""
        gate = Gate(progress.ledger.allowance, progress.hear)
        progress.join(gate.allow)
        autotuner = make_autotuner(self.config, resources)
        slots = resources.slots if autotuner is None else autotuner.limit
        server = GraphServer(
            context,
            shard,
            workers=context.clock.workers(f"graph {shard.server}", resources.graph_threads),
            functions=functions,
            controller=make_controller(self.config, slots, backend, context.clock, recorder.calls(shard.server)),
            autotuner=autotuner,
            gate=gate,
            recorder=recorder,
            placement=Placement.of(
                context.plan,
                rows_of(shard),
                sizes=context.sizes,
                config=self.config,
                cluster=self.prices,
                resources=resources,
            ),
        )
        return GraphHost(server, self.values.of_intervals(shard, context.sizes), progress.hear)

    def _prepare_hosts(self, clock: Clock, backend: Backend, hosts: Sequence[GraphHost]) -> DrivesEpochs:
        """Computes what is computed once; gives the driver, which needs it."""
        if (room := clock.run(backend.warm())) is not None:
            for host, slots in zip(hosts, shares(room, len(hosts)), strict=True):
                host.server.lower_slots(slots)

        async def prepare_all() -> None:
            for task in [task for host in hosts for task in host.prepare()]:
                await task

        clock.run(prepare_all())
        drain_calls(clock, hosts)
        return self.values.driver(hosts[0].free_values())


def _restore(saved: Saved, clock: Clock, hosts: Sequence[GraphHost]) -> float:
    """Brings back what was saved; gives the seconds of the processes before this one, less what the clock shows."""
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
