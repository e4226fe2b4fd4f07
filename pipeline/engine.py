"""`Pipeline`: a validated model and graph, spread over servers and intervals; `start` makes a run of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
import optax

from dorylax.clock import Clock, RealClock, VirtualClock
from dorylax.cost.time_model import times_of
from dorylax.graph.cutting import Cutting
from dorylax.graph.dataset import Dataset
from dorylax.graph.partition import Layout
from dorylax.graph.shard import AnyShard
from dorylax.graph.sharded_data import homes_of, mask_counts
from dorylax.jax_internals import thread_settings
from dorylax.machine import cores
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.interval_data import abstract_values, own_rows, stored_values
from dorylax.pipeline.member import Member
from dorylax.pipeline.prepare import Job, Prepared, layout_for, prepared_for, prices_for
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.resources import Resources, on_cluster, shares
from dorylax.pipeline.run import InlineRun, PipelineRun, drain_calls
from dorylax.pipeline.saved import InitialState, Saved
from dorylax.pipeline.stages import abstract_functions, stage_sizes
from dorylax.pipeline.staleness import Gate
from dorylax.pipeline.transport.in_process import InProcessTransport, modelled
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.serverless.backends.base import Backend


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline(Job):
    """An immutable description of a training job: the model, the data and the servers.

    Attributes:
        prepared: Plan and its compiled functions.
        layout: Assignment of vertices to servers and intervals; None for abstract arrays.
        pieces: Part of the graph on each server.
        rows: Rows of the data on each server (`own_rows`); None to compute on abstract arrays, for timing alone.
        num_training: Number of training vertices.
    """

    prepared: Prepared
    layout: Layout | None
    pieces: tuple[AnyShard, ...]
    rows: Sequence[Mapping[str, np.ndarray]] | None
    num_training: int

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
        simulated = self.prices if self.config.clock == "virtual" else None
        with contextlib.ExitStack() as unfinished:
            config = unfinished.enter_context(on_cluster(self.config))
            resources = Resources.of(config, simulated, cores())
            # Closed last: tasks may use the backend until the clock ends them.
            backends = unfinished.enter_context(contextlib.ExitStack())
            settings, times = thread_settings(), None
            clock: Clock
            if simulated is None:
                clock = unfinished.enter_context(RealClock(settings))
            else:
                virtual = VirtualClock(initializer=settings)
                clock = unfinished.enter_context(virtual)
                times = times_of(simulated, self.seed, virtual, config.servers + config.parameter_servers)
            member = Member(
                dataclasses.replace(self, config=config),
                self.prepared,
                homes_of(self.pieces),
                sizes,
                clock=clock,
                transport=InProcessTransport(clock, None if times is None else modelled(times)),
                trace=trace if saved is None else None,
                times=times,
                abstract=self.rows is None,
            )
            progress = member.ledger(epoch, fills_ghosts=saved is None or not saved.holds_buffers)
            backend = member.open_backend(resources, functions)
            backends.callback(backend.close)
            for shard in self.pieces:
                self._serve(member, shard, progress)
            _prepare(clock, backend, member)
            driver = member.driver(member.constants())
            parameters = member.serve_parameters(driver, InitialState(params, opt_state, state, saved, epoch), progress)
            seconds_before = 0.0
            if saved is not None:
                assert not saved.parts, "whoever reads a checkpoint for this process reads all of it"
                if saved.record["synchronous"]:
                    progress.synchronise(parameters.synchronise)
                member.restore(saved)
                seconds_before = _go_on(clock, float(saved.record["clock"]))
                # The restored counters include the steps before training.
                member.recorder.go_on(saved.record, epoch, trace, seconds_before)
            for host in member.hosts:
                host.begin(driver, epoch)
            return InlineRun(
                member,
                parameters,
                progress,
                cleanup=unfinished.pop_all(),
                config=config,
                clock=clock,
                prices=self.prices,
                epoch=epoch,
                begun=0.0 if saved is None else clock.now(),
                seconds_before=seconds_before,
                saved=saved,
            )

    def _serve(self, member: Member, shard: AnyShard, progress: Progress) -> None:
        """Create a graph server and its intervals, connected directly to the ledger."""
        gate = Gate(progress.ledger.allowance, progress.hear)
        progress.join(gate.allow)
        if self.rows is None:
            values = abstract_values(self.prepared, shard)
        else:
            values = stored_values(self.prepared, self.rows[shard.server], shard, self.num_training)
        member.serve_graph(shard, values, gate, progress.hear)


def _prepare(clock: Clock, backend: Backend, member: Member) -> None:
    """Run the steps before training."""
    hosts = member.hosts
    if (room := clock.run(backend.warm())) is not None:
        for host, slots in zip(hosts, shares(room, len(hosts)), strict=True):
            host.server.lower_slots(slots)

    async def prepare_all() -> None:
        for task in [task for host in hosts for task in host.prepare()]:
            await task

    clock.run(prepare_all())
    drain_calls(clock, hosts)


def _go_on(clock: Clock, seconds: float) -> float:
    """Continue the clock of earlier processes, and return their seconds minus the clock's reading."""
    if isinstance(clock, VirtualClock):
        clock.jump(seconds)
        return 0.0
    return seconds - clock.now()
