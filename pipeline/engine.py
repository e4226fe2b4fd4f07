"""`Pipeline`: intervals of all servers as coroutines, epoch after epoch, on a real or a virtual clock.

An interval's life is `_live`: enter the gate, pull weights, take the plan's steps, wait for what was sent, again. Which
tasks overlap is nobody's decision: it follows from what each coroutine awaits.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import numpy as np
import optax

from dorylax.clock import RealClock, VirtualClock
from dorylax.cost import Bill, Cluster, TimeModel, find_cluster
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout, Partition, PartitionError, lay_out, partition
from dorylax.graph.shard import Shard, shards
from dorylax.jax_internals import Var, thread_settings
from dorylax.pipeline import aligned
from dorylax.pipeline.config import PipelineConfig, PipelineConfigError
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.driver import Driver
from dorylax.pipeline.fabric import Fabric
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.parameters import Applied, ParameterServers
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.prepare import Prepared, prepare
from dorylax.pipeline.saved import Saved, restore_buffers, save_buffers
from dorylax.pipeline.stages import StageFunction, StageSizes, pad
from dorylax.pipeline.staleness import Ledger
from dorylax.pipeline.timeline import Span, Timeline
from dorylax.pipeline.transport import Address, InProcessTransport
from dorylax.pipeline.visit import Visit
from dorylax.program.arguments import RunData, data_values, training_weights
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.rows.types import Free, Rows, Summed
from dorylax.serverless.backends.inline import InlineBackend


@final
@dataclasses.dataclass(frozen=True, eq=False)
class PipelineEpoch:
    """An epoch that every interval has finished.

    Attributes:
        epoch: its number.
        loss: Σ weight · loss over all training vertices, each interval with the weights that it had pulled.
        seconds: of the clock, since the epoch before was finished.
        params, opt_state: the newest version of the first parameter server; never written to.
        state: the model's other state.
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
        cluster: Cluster | None,
        seed: int,
        compile_seconds: float,
    ) -> None:
        self.passes = prepared.plan.program.passes
        self.compile_seconds = compile_seconds
        self._prepared, self._plan, self._parts, self._data = prepared, prepared.plan, parts, data
        self._layout, self._shards = layout, pieces
        self._optimizer, self._config, self._cluster, self._seed = optimizer, config, cluster, seed
        self._homes = [shard.server for shard in pieces for _ in shard.bounds[1:]]
        self._clock: RealClock | VirtualClock | None = None

    @classmethod
    def of(
        cls,
        parts: ModelParts,
        data: Dataset,
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        *,
        seed: int = 0,
    ) -> Pipeline:
        """Traces and splits the model, partitions and lays out the graph; nothing is trained.

        Args:
            parts: the model.
            data: the data set.
            optimizer: any optax transformation that does not evaluate the loss itself.
            config: how to run.
            seed: of dropout, of the partition and of virtual latencies.

        Raises:
            PipelineConfigError: the configuration does not fit the graph or the model; names the key.
            SplitError: the model cannot be split.
        """
        begin = time.perf_counter()
        cluster = find_cluster(config.cluster) if config.clock == "virtual" else None
        num_vertices = data.graph.num_vertices
        if config.servers > num_vertices:
            raise PipelineConfigError(
                "servers", f"must be ≤ {num_vertices}, the graph's vertices, got {config.servers}"
            )
        if config.intervals * config.servers > num_vertices:
            raise PipelineConfigError(
                "intervals",
                f"= {config.intervals} on {config.servers} servers are {config.intervals * config.servers} intervals, more "
                f"than the graph's {num_vertices} vertices: give fewer",
            )
        prepared = prepare(parts, data, config.passes)
        _check_state(prepared.plan, config)
        layout = _layout(data, config, seed)
        graph = data.graph.reorder(layout.order)
        wide = data.features.dtype == np.float64
        weights = training_weights(data.train_mask, np.float64 if wide else np.float32)[layout.order]
        run_data = RunData(graph, (aligned.rows_of(data.features, layout.order),), data.labels[layout.order], weights)
        pieces = shards(graph, layout)
        return cls(
            prepared=prepared,
            parts=parts,
            data=run_data,
            layout=layout,
            pieces=pieces,
            optimizer=optimizer,
            config=config,
            cluster=cluster,
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
        functions = self._prepared.functions(sizes)
        self.compile_seconds += time.perf_counter() - begin
        settings = thread_settings()
        self._clock = RealClock(settings) if self._cluster is None else VirtualClock(initializer=settings)
        self._times = None if self._cluster is None else TimeModel(self._cluster, self._seed)
        self._timeline, self._counters = Timeline(recording=trace), Counters()
        try:
            fabric = self._make_fabric(sizes, functions, (params, opt_state), epoch, saved)
            self._make_servers(fabric)
            self._begin(sizes, state, epoch, saved)
        except BaseException:
            self.close()
            raise

    def _make_fabric(
        self,
        sizes: StageSizes,
        functions: Mapping[int, StageFunction],
        weights: tuple[Tree, Tree],
        epoch: int,
        saved: Saved | None,
    ) -> Fabric:
        """The gate, the parameter servers, the workers."""
        config, plan, clock = self._config, self._plan, self._running
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
        self._states: dict[int, dict[int, Tree]] = {}
        transport = InProcessTransport(clock, self._message_seconds)
        self._parameter_workers = [clock.workers(f"parameters {k}", 1) for k in range(config.parameter_servers)]
        self._parameters = ParameterServers(
            weights[0],
            self._optimizer,
            num_servers=config.parameter_servers,
            homes=self._homes,
            stages=plan.stages_with_sums,
            finish=self._finish,
            transport=transport,
            spawn=clock.spawn,
            on_applied=self._applied,
            update=config.update or "per_epoch",
            interval_step_scaling=config.interval_step_scaling,
            sync_every=config.sync_every,
            compute=self._compute_parameters,
            opt_state=weights[1],
            version=0 if saved is None else int(saved.record["version"]),
            first_epoch=epoch,
        )
        if saved is not None and saved.record["synchronous"]:
            self.synchronise()
        backend = InlineBackend(
            functions, clock, slots=self._tensor_slots(), num_servers=config.servers, times=self._times
        )
        return Fabric(
            plan=plan,
            sizes=sizes,
            functions=functions,
            backend=backend,
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

    def _make_servers(self, fabric: Fabric) -> None:
        self._servers: list[GraphServer] = []
        for shard in self._shards:
            server = GraphServer(
                shard,
                first_interval=sum(one.num_intervals for one in self._servers),
                owners=self._homes,
                threads=self._graph_threads(),
                one_at_a_time=self._config.mode == "no-pipe",
                fabric=fabric,
            )
            self._servers.append(server)

    def _begin(self, sizes: StageSizes, state: Tree, epoch: int, saved: Saved | None) -> None:
        """Computes what is computed once, brings back what was saved, and lets intervals come to the gate."""
        clock = self._running
        constants = self._fill(sizes)
        free = clock.run(self._run_once(constants))
        self._driver = Driver(
            self._plan, self._prepared.driver, free, streams=self._parts.streams, state=state, seed=self._seed
        )
        if saved is not None:
            self._counters.restore(saved.record["counters"])  # what is computed once was counted then
            restore_buffers(saved, self._servers)
            if isinstance(clock, VirtualClock):
                clock.jump(float(saved.record["clock"]))
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
            self._driver.state,
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
        record = {
            "version": self._parameters.newest().version,
            "clock": self._running.now(),
            "synchronous": self._ledger.switched and not self._config.synchronous,
            "counters": dataclasses.asdict(self._counters),
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
        """How much the run has done: `Counters`, and in virtual time its seconds and dollars."""
        found: dict[str, float | int] = dict(self._counters.to_dict())
        if self._cluster is not None:
            bill = Bill.of(
                self._cluster,
                seconds=self._running.now(),
                graph_servers=self._config.servers,
                parameter_servers=self._config.parameter_servers,
                calls=self._counters.calls,
            )
            found["virtual_seconds"] = self._running.now()
            found["dollars"] = bill.total
        return found

    def close(self) -> None:
        """Ends all coroutines and threads; the pipeline may be started again."""
        if self._clock is not None:
            self._clock.close()

    # Intervals.

    async def _live(self, server: GraphServer, interval: int, constants: dict[Var, Any], epoch: int) -> None:
        number = server.first_interval + interval
        while True:
            await self._gate.enter(number, epoch)
            pulled = await self._parameters.pull(number, epoch)
            visit = Visit(interval, number, epoch, self._driver.values(pulled.params, pulled.version, epoch), constants)
            for step in self._plan.epoch:
                await server.run(step, visit)
            await server.finish(visit)
            del visit, pulled  # their rows and weights are not to outlive the epoch
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
            visit = Visit(interval, number, -1, {}, constants[number])
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

    def _fill(self, sizes: StageSizes) -> list[dict[Var, Any]]:
        """The data of each interval, padded."""
        program = self._plan.program
        types = program.facts.types
        inputs = program.traced.step.jaxpr.invars
        found = data_values(program.traced, self._data)
        wanted = {var for step in (*self._plan.once, *self._plan.epoch) for var in step.reads}
        wanted |= {publication.var for publication in self._plan.publications}
        wanted |= set(self._prepared.driver.constants)
        constants: list[dict[Var, Any]] = []
        for shard in self._shards:
            for interval in range(len(shard.bounds) - 1):
                mine: dict[Var, Any] = {}
                for k, value in found.items():
                    var, entry = inputs[k], program.traced.inputs[k]
                    if var not in wanted:
                        continue
                    row_type = types[var]
                    if not isinstance(row_type, Rows):
                        mine[var] = value
                        continue
                    vertices = row_type.space == "vertex"
                    bounds, start = (shard.bounds, shard.first) if vertices else (shard.edge_bounds, shard.first_edge)
                    first, last = start + bounds[interval], start + bounds[interval + 1]
                    rows = np.asarray(value)[first:last]
                    if vertices:
                        zero = entry.role in ("weights", "real")
                        rows = pad(rows, row_type, last - first, sizes.vertices, zero=zero)
                    mine[var] = rows
                constants.append(mine)
        return constants

    # Ends of epochs.

    def _finish(self, params: Tree, epoch: int, sums: Mapping[int, Any]) -> Any:
        return self._driver.finish(params, epoch, sums)

    def _applied(self, applied: Applied) -> None:
        for (interval, epoch), loss, state in zip(applied.pairs, applied.losses, applied.extras, strict=True):
            self._losses.setdefault(epoch, {})[interval] = loss
            states = self._states.setdefault(epoch, {})
            states[interval] = state
            if len(states) == len(self._homes):
                self._driver.state = self._joined(self._states.pop(epoch))
        for interval, epoch in applied.pairs:
            self._finished(interval, epoch)

    def _joined(self, states: Mapping[int, Tree]) -> Tree:
        """The model's state after an epoch: sums over rows are added up, the rest is the same for all."""
        trees = [states[k] for k in sorted(states)]
        traced, types = self._plan.program.traced, self._plan.program.facts.types
        summed = set()
        for output, atom in zip(traced.outputs, traced.step.jaxpr.outvars, strict=True):
            if output.role == "state" and isinstance(atom, Var) and isinstance(types[atom], Summed):
                summed.add(output.name)
        names = [entry.name for entry in traced.inputs if entry.role == "state"]
        leaves = [jax.tree.leaves(tree) for tree in trees]
        joined = [
            sum(column[1:], start=column[0]) if name in summed else column[0]
            for name, column in zip(names, zip(*leaves, strict=True), strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(trees[0]), joined)

    def _finished(self, interval: int, epoch: int) -> None:
        """An epoch is finished when its gradient is applied and its last message has come."""
        pair = (interval, epoch)
        if pair not in self._half_finished:
            self._half_finished.add(pair)
            return
        self._half_finished.remove(pair)
        self._gate.finished(interval, epoch)

    # Resources.

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
        self._timeline.add(
            Span("WU" if kind == "update" else kind, "parameters", server, -1, order[0], timed.start, timed.end)
        )
        return timed.value

    def _graph_threads(self) -> int:
        if self._config.graph_threads is not None:
            return self._config.graph_threads
        if self._cluster is not None:
            return self._cluster.graph_server.threads
        return max(1, _cores() // self._config.servers)

    def _tensor_slots(self) -> int:
        if self._config.tensor_slots is not None:
            return self._config.tensor_slots
        if self._cluster is not None:
            return self._cluster.functions
        return max(1, _cores() // self._config.servers)

    @property
    def _running(self) -> RealClock | VirtualClock:
        if self._clock is None:
            raise RuntimeError("the pipeline is not started: call start() first")
        return self._clock

    @property
    def _ledger(self) -> Ledger:
        return self._gate.ledger


def stage_sizes(pieces: Sequence[Shard], edge_chunk: int) -> StageSizes:
    """Rows of each call of a stage: of the largest interval, and of edges in chunks that are not larger than need be.

    Edges are rounded up by at most a quarter: partitions of other seeds then find the same functions compiled.
    """
    vertices = max(last - first for shard in pieces for first, last in itertools.pairwise(shard.bounds))
    edges = max(last - first for shard in pieces for first, last in itertools.pairwise(shard.edge_bounds))
    grain = 1 << max(0, edges.bit_length() - 3)
    return StageSizes(vertices, max(1, min(edge_chunk, -(-edges // grain) * grain)))


def _layout(data: Dataset, config: PipelineConfig, seed: int) -> Layout:
    try:
        if config.partition is None:
            found = partition(data.graph, config.servers, method=config.partitioner, balance=config.balance, seed=seed)
        else:
            found = Partition.load(config.partition)
            found.check(data.graph)
            if found.num_parts != config.servers:
                raise PipelineConfigError(
                    "servers", f"= {config.servers}, but the partition in {config.partition} is for {found.num_parts}"
                )
    except PartitionError as error:
        raise PipelineConfigError(
            "partition" if config.partition else "partitioner", f"cannot be used: {error}"
        ) from error
    try:
        return lay_out(data.graph, found, config.intervals)
    except PartitionError as error:
        even = "" if config.partitioner == "range" else ", or pipeline.partitioner=range, whose parts are even"
        raise PipelineConfigError("intervals", f"= {config.intervals} do not fit: {error}{even}") from error


def _check_state(plan: Plan, config: PipelineConfig) -> None:
    changing = [output.name for output in plan.program.traced.outputs if output.role == "state"]
    if changing and not config.synchronous:
        raise PipelineConfigError(
            "mode",
            f"= async cannot train {plan.program.traced.name}, whose state {changing[0]} changes with every epoch: "
            "intervals stand in different epochs. Choose pipe",
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
