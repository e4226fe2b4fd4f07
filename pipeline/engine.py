"""`Pipeline`: intervals of all servers as coroutines, epoch after epoch, on a real or a virtual clock.

An interval's life is `_live`: enter the gate, pull weights, take the plan's steps, wait for what was sent, again. Which
tasks overlap is nobody's decision: it follows from what each coroutine awaits.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, final

import jax
import numpy as np
import optax

from dorylax import aligned
from dorylax.clock import RealClock, VirtualClock
from dorylax.cost import Bill, Cluster, TimeModel, find_cluster
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout
from dorylax.graph.shard import Shard, shards
from dorylax.jax_internals import Var, thread_settings
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.driver import Driver
from dorylax.pipeline.fabric import Fabric
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.interval_data import interval_data
from dorylax.pipeline.parameters import Applied, Complete, ParameterServers
from dorylax.pipeline.parameters.messages import Sums
from dorylax.pipeline.prepare import Prepared, prepare
from dorylax.pipeline.resources import Resources, cores, shares
from dorylax.pipeline.saved import Saved, restore_buffers, restore_controller, save_buffers, save_controller
from dorylax.pipeline.setup import check_counts, check_optimizer, layout_for
from dorylax.pipeline.stages import StageFunction, StageSizes, stage_sizes
from dorylax.pipeline.staleness import Ledger
from dorylax.pipeline.tensor_calls import make_autotuner, make_backend, make_controller
from dorylax.pipeline.timeline import Span, Timeline
from dorylax.pipeline.transport import Address, InProcessTransport
from dorylax.pipeline.visit import Visit
from dorylax.program.arguments import RunData, training_weights
from dorylax.program.loss import cross_entropy
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.rows.types import Free, Summed
from dorylax.program.tracing import RowFunction
from dorylax.serverless.backends.base import Backend
from dorylax.serverless.controller import Call


@final
@dataclasses.dataclass(frozen=True, eq=False)
class PipelineEpoch:
    """An epoch that every interval has finished.

    Attributes:
        epoch: its number.
        loss: Σ weight · loss over all training vertices, each interval with the weights that it had pulled.
        seconds: of the clock, since the epoch before was finished.
        params, opt_state, state: the newest version of the first parameter server; never written to.
    """

    epoch: int
    loss: float
    seconds: float
    params: Tree
    opt_state: Tree
    state: Tree


@final
class Pipeline:
    """Trains a model on servers, parameter servers and tensor workers of this process.

    `of` checks everything; `start` makes the run; `run_epoch` trains. Between calls of `run_epoch` all coroutines stand
    still, those of an asynchronous run in the middle of later epochs.

    Attributes:
        passes: those of the program.
        compile_seconds: spent on tracing, partitioning and compiling.
    """

    def __init__(
        self,
        *,
        prepared: Prepared,
        parts: ModelParts,
        data: RunData,
        layout: Layout,
        pieces: tuple[Shard, ...],
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        prices: Cluster | None,
        seed: int,
        compile_seconds: float,
    ) -> None:
        self.passes = prepared.plan.program.passes
        self.compile_seconds = compile_seconds
        self._prepared, self._plan, self._parts, self._data = prepared, prepared.plan, parts, data
        self._layout, self._shards = layout, pieces
        self._optimizer, self._config, self._seed = optimizer, config, seed
        self._prices, self._cluster = prices, prices if config.clock == "virtual" else None
        self._labels = {step.index: step.label for step in (*self._plan.once, *self._plan.epoch)}
        self._homes = [shard.server for shard in pieces for _ in shard.bounds[1:]]
        self._resources = Resources.of(config, self._cluster, cores())
        self._clock: RealClock | VirtualClock | None = None
        self._backend: Backend | None = None

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
        begin = time.perf_counter()
        virtual = config.clock == "virtual"
        billed = virtual or config.tensor.backend != "inline"
        prices = find_cluster(config.cluster) if billed else None
        check_counts(config, data.graph.num_vertices)
        check_optimizer(optimizer, parts.params, config)
        prepared = prepare(parts, data, config.passes, loss=loss)
        layout = layout_for(data.graph, config, seed)
        graph = data.graph.reorder(layout.order)
        wide = data.features.dtype == np.float64
        weights = training_weights(data.train_mask, np.float64 if wide else np.float32)[layout.order]
        further = {name: aligned.rows_of(array, layout.order) for name, array in data.vertex_inputs.items()}
        further |= data.edge_inputs  # in order of edge ids, which edges keep
        named = [further[entry.name] for entry in prepared.plan.program.traced.spec.named]
        inputs = (aligned.rows_of(data.features, layout.order), *named)
        run_data = RunData(graph, inputs, data.labels[layout.order], weights)
        pieces = shards(graph, layout)
        return cls(
            prepared=prepared,
            parts=parts,
            data=run_data,
            layout=layout,
            pieces=pieces,
            optimizer=optimizer,
            config=config,
            prices=prices,
            seed=seed,
            compile_seconds=time.perf_counter() - begin,
        )

    def start(
        self,
        params: Tree,
        opt_state: Tree,
        state: Tree,
        *,
        epoch: int = 0,
        saved: Saved | None = None,
        trace: bool = True,
    ) -> None:
        """Makes the servers, computes what is computed once, and puts every interval before the gate.

        Args:
            params: parameters.
            opt_state: the optimizer's state.
            state: the model's other state.
            epoch: the first that is trained.
            saved: what `save` gave at that epoch; without it, an asynchronous run fills its ghosts by a synchronous epoch.
            trace: keep what every task did, for `trace_events`.
        """
        self.close()
        begin = time.perf_counter()
        sizes = stage_sizes(self._shards, self._config.edge_chunk)
        functions = self._prepared.functions(sizes, of_workers=self._config.tensor.backend == "inline")
        self.compile_seconds += time.perf_counter() - begin
        settings = thread_settings()
        self._clock = RealClock(settings) if self._cluster is None else VirtualClock(initializer=settings)
        self._times = None if self._cluster is None else TimeModel(self._cluster, self._seed)
        self._timeline, self._counters = Timeline(recording=trace), Counters()
        self._seconds_before = 0.0
        try:
            fabric = self._make_fabric(sizes, functions, (params, opt_state, state), epoch, saved)
            self._backend = make_backend(
                self._config,
                self._resources,
                self._prepared,
                functions=functions,
                clock=self._clock,
                times=self._times,
            )
            self._make_servers(fabric, self._backend)
            self._begin(self._backend, sizes, epoch, saved)
        except BaseException:
            self.close()
            raise

    def _make_fabric(
        self,
        sizes: StageSizes,
        functions: Mapping[int, StageFunction],
        trees: tuple[Tree, Tree, Tree],
        epoch: int,
        saved: Saved | None,
    ) -> Fabric:
        """The gate and the parameter servers."""
        config, plan, clock = self._config, self._plan, self._running
        params, opt_state, state = trees
        ledger = Ledger(
            len(self._homes),
            config.staleness or 0,
            first=epoch,
            first_synchronous=saved is None or not saved.arrays,
            synchronous=config.synchronous,
        )
        self._gate = Gate(ledger)
        self._held: set[int] = set()
        self._half_finished: set[tuple[int, int]] = set()
        self._losses: dict[int, dict[int, float]] = {}
        transport = InProcessTransport(clock, self._message_seconds)
        self._parameter_workers = [clock.workers(f"parameters {k}", 1) for k in range(config.parameter_servers)]
        self._parameters = ParameterServers(
            params,
            state,
            self._optimizer,
            num_servers=config.parameter_servers,
            homes=self._homes,
            stages=plan.stages_with_sums,
            finish=self._finish,
            advance=self._advance if self._prepared.driver.changing else None,
            transport=transport,
            spawn=clock.spawn,
            on_applied=self._applied,
            update=config.update or "per_epoch",
            interval_step_scaling=config.interval_step_scaling,
            sync_every=config.sync_every,
            compute=self._compute_parameters,
            opt_state=opt_state,
            version=0 if saved is None else int(saved.record["version"]),
            first_epoch=epoch,
        )
        if saved is not None and saved.record["synchronous"]:
            self.synchronise()
        return Fabric(
            plan=plan,
            sizes=sizes,
            functions=functions,
            parameters=self._parameters,
            transport=transport,
            clock=clock,
            times=self._times,
            timeline=self._timeline,
            counters=self._counters,
            chunk=config.edge_chunk,
            keeps=not config.synchronous,
            required=ledger.required_row_epoch,
        )

    def _make_servers(self, fabric: Fabric, backend: Backend) -> None:
        self._servers: list[GraphServer] = []
        for shard in self._shards:
            autotuner = make_autotuner(self._config, self._resources)
            slots = self._resources.slots if autotuner is None else autotuner.limit
            record = self._call_recorder(shard.server)
            server = GraphServer(
                shard,
                first_interval=sum(one.num_intervals for one in self._servers),
                owners=self._homes,
                threads=self._resources.graph_threads,
                one_at_a_time=self._config.mode == "no-pipe",
                controller=make_controller(self._config, slots, backend, fabric.clock, record),
                autotuner=autotuner,
                fabric=fabric,
            )
            self._servers.append(server)

    def _begin(self, backend: Backend, sizes: StageSizes, epoch: int, saved: Saved | None) -> None:
        """Computes what is computed once, brings back what was saved, and lets intervals come to the gate."""
        clock = self._running
        constants = interval_data(self._prepared, self._data, self._shards, sizes)
        if (room := clock.run(backend.warm())) is not None:
            for server, slots in zip(self._servers, shares(room, len(self._servers)), strict=True):
                server.lower_slots(slots)
        free = clock.run(self._run_once(constants))
        self._drain_calls()
        functions, streams = self._prepared.driver, self._parts.streams
        self._driver = Driver(self._plan, functions, free, streams=streams, seed=self._seed)
        if saved is not None:
            self._counters.restore(saved.record["counters"])  # what is computed once was counted then
            restore_buffers(saved, self._servers)
            for server, record in zip(self._servers, saved.record["controllers"], strict=True):
                restore_controller(server, record)
            if isinstance(clock, VirtualClock):
                clock.jump(float(saved.record["clock"]))
            else:
                self._seconds_before = float(saved.record["clock"]) - clock.now()
        self._epoch, self._last = epoch, 0.0 if saved is None else clock.now()
        for server in self._servers:
            for interval in range(server.num_intervals):
                number = server.first_interval + interval
                clock.spawn(self._live(server, interval, constants[number], epoch), name=f"interval {number}")

    def barrier(self, epoch: int) -> None:
        """Lets no interval start this epoch before all have finished the one before: where a checkpoint is due, at the end.

        Args:
            epoch: that no interval has started.
        """
        self._ledger.barrier(epoch, hold=True)
        self._held.add(epoch)

    def run_epoch(self) -> PipelineEpoch:
        """Trains until the slowest interval has finished the next epoch.

        Raises:
            TaskFailedError: a task failed too often.
        """
        clock, epoch = self._running, self._epoch
        if epoch in self._held:  # until now the run could be saved there
            self._held.remove(epoch)
            self._ledger.release(epoch)
            self._gate.changed()
        if self._ledger.synchronous(epoch + 1) and epoch + 1 not in self._held:
            self.barrier(epoch + 1)  # else intervals would begin it now, beside what the caller does between epochs
        begin = clock.now()
        try:
            clock.run(self._gate.all_finished(epoch))
        except BaseException:
            self.close()  # an interval is gone: nobody could ever finish the epoch
            raise
        since = self._last if clock.kind == "virtual" else begin
        seconds = clock.now() - since
        self._last, self._epoch = clock.now(), epoch + 1
        losses = self._losses.pop(epoch)
        newest = self._parameters.newest()
        return PipelineEpoch(
            epoch,
            sum(losses[k] for k in sorted(losses)),
            seconds,
            newest.params,
            newest.opt_state,
            newest.state,
        )

    def drain(self) -> int:
        """Lets no interval start an epoch that none has started yet; gives that epoch, before which all will stand."""
        epoch = self._ledger.close()
        self._held.add(epoch)
        return epoch

    def synchronise(self) -> int:
        """Goes on synchronously, with one update per epoch, from the epoch on that is returned."""
        epoch = self._ledger.synchronise()
        self._parameters.synchronise(epoch)
        self._gate.changed()
        return epoch

    def save(self) -> Saved | None:
        """What `start` needs to go on bit for bit (in virtual time); None where intervals are in the middle of epochs."""
        if self._ledger.standing is None or not self._parameters.settled:
            return None
        synchronous = self._ledger.synchronous(self._ledger.min_epoch)
        self._drain_calls()
        record = {
            "version": self._parameters.newest().version,
            "clock": self.seconds,
            "synchronous": self._ledger.switched and not self._config.synchronous,
            "counters": dataclasses.asdict(self._counters) | {"relaunches": self.counters()["relaunches"]},
            "controllers": [save_controller(server) for server in self._servers],
        }
        # Synchronous epochs read nothing that they have not written.
        return Saved({} if synchronous else save_buffers(self._servers), record)

    def trace_events(self) -> list[dict[str, Any]]:
        """Chrome trace events of all tasks since `start`."""
        return self._timeline.events()

    @property
    def spans(self) -> list[Span]:
        """The same as spans."""
        return self._timeline.spans

    def counters(self) -> dict[str, float | int]:
        """How much the run has done: `Counters`, and in virtual time its seconds."""
        found: dict[str, float | int] = dict(self._counters.to_dict())
        found["relaunches"] = self._counters.relaunches + sum(one.controller.relaunched for one in self._servers)
        if self._cluster is not None:
            found["virtual_seconds"] = self.seconds
        return found

    def rows_by_lag(self) -> dict[str, int]:
        """How stale the rows were that intervals have read: `Counters.rows_by_lag`, in order."""
        return {lag: self._counters.rows_by_lag[lag] for lag in sorted(self._counters.rows_by_lag, key=int)}

    @property
    def seconds(self) -> float:
        """Since the run began, on its clock; those of processes before this one, that it goes on from, included."""
        return self._seconds_before + self._running.now()

    @property
    def prices(self) -> Cluster | None:
        """What the run is billed as; None where it costs nothing."""
        return self._prices

    def bill(self) -> Bill | None:
        """What the run has cost so far, by the prices of its cluster; None where it costs nothing."""
        if self._prices is None:
            return None
        return Bill.of(
            self._prices,
            seconds=self.seconds,
            graph_servers=self._config.servers,
            parameter_servers=self._config.parameter_servers,
            calls=self._counters.calls,
        )

    def close(self) -> None:
        """Ends all coroutines, threads and workers; the pipeline may be started again."""
        try:
            if self._clock is not None:
                self._clock.close()
        finally:
            if self._backend is not None:
                self._backend.close()

    # Intervals.

    async def _live(self, server: GraphServer, interval: int, constants: dict[Var, Any], epoch: int) -> None:
        number = server.first_interval + interval
        while True:
            await self._gate.enter(number, epoch)
            pulled = await self._parameters.pull(number, epoch)
            values = self._driver.values(pulled, epoch)
            weights = tuple(jax.tree.leaves(pulled.params))
            visit = Visit(interval, number, epoch, pulled.version, weights, values, constants)
            for step in self._plan.epoch:
                await server.run(step, visit)
            await server.finish(visit)
            del visit, pulled, weights, values  # their rows and weights are not to outlive the epoch
            self._finished(number, epoch)
            epoch += 1

    async def _run_once(self, constants: list[dict[Var, Any]]) -> dict[Var, Any]:
        """Publishes data that are read through edges, and runs what is computed once; gives the values without rows."""
        types, plan = self._plan.program.facts.types, self._plan
        inputs = set(plan.program.traced.step.jaxpr.invars)
        from_data = [k for k, entry in enumerate(plan.publications) if entry.var in inputs]
        free = {var: value for var, value in constants[0].items() if isinstance(types[var], Free)}

        async def prepare_one(server: GraphServer, interval: int) -> None:
            number = server.first_interval + interval
            visit = Visit(interval, number, -1, -1, (), {}, constants[number])
            for publication in from_data:
                await server.publish(publication, visit)
            for step in plan.once:
                await server.run(step, visit)
            await server.finish(visit)
            constants[number].update(visit.values)

        clock = self._running
        tasks = [
            clock.spawn(prepare_one(server, interval), name=f"interval {server.first_interval + interval}")
            for server in self._servers
            for interval in range(server.num_intervals)
        ]
        for task in tasks:
            await task
        free.update({var: value for var, value in constants[0].items() if isinstance(types[var], Free | Summed)})
        return free

    def _drain_calls(self) -> None:
        """On the virtual clock, waits for late calls: they hold slots, which a run that goes on from here would not know."""
        if self._running.kind == "virtual":
            for server in self._servers:
                self._running.run(server.controller.drain())

    # Ends of epochs.

    def _finish(self, params: Tree, state: Tree, epoch: int, sums: Mapping[int, Sums]) -> Complete:
        return self._driver.finish(params, state, epoch, sums)

    def _advance(self, params: Tree, state: Tree, epoch: int, statistics: Tree) -> Tree:
        return self._driver.advance(params, state, epoch, statistics)

    def _applied(self, applied: Applied) -> None:
        for (interval, epoch), loss in zip(applied.pairs, applied.losses, strict=True):
            self._losses.setdefault(epoch, {})[interval] = loss
        for interval, epoch in applied.pairs:
            self._finished(interval, epoch)

    def _finished(self, interval: int, epoch: int) -> None:
        """An epoch is finished when its gradient is applied and its last message has come."""
        pair = (interval, epoch)
        if pair not in self._half_finished:
            self._half_finished.add(pair)
            return
        self._half_finished.remove(pair)
        self._gate.finished(interval, epoch)

    # Resources.

    def _call_recorder(self, server: int) -> Callable[[Call], None]:
        """What notes the calls of one server's tensor tasks: all are billed, whatever became of them."""

        def record(call: Call) -> None:
            self._counters.call(call)
            if call.outcome != "answered":
                key = call.key
                name = f"{self._labels[key.stage]} ({call.outcome})"
                span = Span(name, "tensor", server, key.interval, key.epoch, call.start, call.end, key.stage)
                self._timeline.add(span)

        return record

    def _message_seconds(self, sender: Address, receiver: Address, num_bytes: int, order: tuple[int, ...]) -> float:
        if self._times is None:
            return 0.0
        roles = ("graph", "parameter")
        key = (roles.index(sender.role), sender.index, roles.index(receiver.role), receiver.index, *order)
        return self._times.message(key, bytes=num_bytes)

    async def _compute_parameters(
        self, server: int, kind: str, work: Any, num_bytes: int, order: tuple[int, ...]
    ) -> Any:
        seconds = 0.0 if self._times is None else self._times.update((server, *order), bytes=num_bytes)
        timed = await self._parameter_workers[server].run(work, seconds=seconds, order=order)
        if kind == "update":
            span = Span("WU", "parameters", server, -1, -1, timed.start, timed.end, version=order[0])
        else:  # "finish", for one interval
            epoch, _, interval = order
            span = Span(kind, "parameters", server, interval, epoch, timed.start, timed.end)
        self._timeline.add(span)
        return timed.value

    @property
    def _running(self) -> RealClock | VirtualClock:
        if self._clock is None:
            raise RuntimeError("the pipeline is not started: call start() first")
        return self._clock

    @property
    def _ledger(self) -> Ledger:
        return self._gate.ledger
