"""A graph server: it owns a shard, computes for its intervals on threads, and exchanges boundary rows with its peers.

Values that other intervals read through edges are in the server's buffers (`dorylax.pipeline.buffers`). All other values
are in an `IntervalPass`. The functions of `dorylax.pipeline.steps` use this class to run the steps of an interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, final

import numpy as np

from dorylax.abstract_array import abstract_array, taken
from dorylax.clock import Duration, Request, Timed, Workers
from dorylax.cost import RowsRead
from dorylax.graph.shard import AnyShard
from dorylax.jax_internals import type_of
from dorylax.ops.row_loops.rows import RowRange
from dorylax.pipeline.asynchrony import BlocksRead, ExponentialMean
from dorylax.pipeline.buffers import MergeBuffer, PartsBuffer, RowBuffer
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.messages import HEADER_BYTES, PartsMessage, RowsMessage, SumsMessage
from dorylax.pipeline.operators import Piece, pieces, row_shape
from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.placement import Placement
from dorylax.pipeline.places import note_place
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.stages import StageFunction, stage_effort
from dorylax.pipeline.staleness import Gate
from dorylax.pipeline.stamps import Quorum, Reads, Stamps
from dorylax.pipeline.transport.base import Address, Waiting
from dorylax.pipeline.transport.first_step import all_of
from dorylax.program.tasks.steps import Operand, Step
from dorylax.serverless.controller import Autotuner, Controller
from dorylax.serverless.task import TensorTask
from dorylax.store.servers import GraphServerMetrics

T = TypeVar("T")

Message = RowsMessage | SumsMessage | PartsMessage
_KINDS = {RowsMessage: ("rows", "SC"), SumsMessage: ("sums", "∇SC"), PartsMessage: ("parts", "GS")}

_COPY = -3  # place of the job that copies publication k: _COPY - k


class Job(NamedTuple):
    """A job for the threads of a graph server.

    Attributes:
        step: Step that the job belongs to.
        current: Interval and epoch of the job.
        place: Number of the job, unique within its step and pass.
        flops: Estimated number of operations.
        bytes: Estimated number of bytes read.
        label: Name of the job.
        rows: Rows that the job reads along edges; None for sequential reads.
        elementwise: Operations of a stage outside matrix products, included in `flops`; None for other jobs.
    """

    step: Step
    current: IntervalPass
    place: int
    flops: int
    bytes: int
    label: str
    rows: RowsRead | None = None
    elementwise: int | None = None


@final
class GraphServer:
    """One graph server. Its arguments are attributes too.

    Args:
        context: State shared by all servers of a host.
        shard: The server's part of the graph.
        workers: Threads for graph tasks.
        functions: Compiled functions of the stages and driver tasks that run here, by task index.
        controller: Submits tensor tasks to workers.
        autotuner: Adapts the number of concurrent tensor tasks to the queue of graph tasks; None for a fixed number.
        gate: Blocks intervals before their epochs, and bounds the age of rows.
        recorder: Records tasks, messages and reads.
        placement: Decides which stages run on functions; None to run all stages here.

    Attributes:
        first_interval: Number of the server's first interval in the whole graph.
        address: Address of the server for its peers.
        counts: Counters per epoch.
        parameters: Client of the parameter servers.
        buffers: Row buffer of each publication in the plan.
        merges: Merge buffer of each push, by task index.
        parts: Buffer of each sum over all rows, by task index.
        peers: Indices of the other graph servers.
    """

    def __init__(
        self,
        context: HostContext,
        shard: AnyShard,
        *,
        workers: Workers,
        functions: Mapping[int, StageFunction],
        controller: Controller,
        autotuner: Autotuner | None,
        gate: Gate,
        recorder: Recorder,
        placement: Placement | None = None,
    ) -> None:
        self.placement = Placement(None, fixed=frozenset()) if placement is None else placement
        self.context, self.shard, self.workers, self.functions = context, shard, workers, functions
        self.controller, self.autotuner, self.gate, self.recorder = controller, autotuner, gate, recorder
        self.first_interval = context.homes.index(shard.server)
        self.address = Address(context.role, shard.server)
        self.parameters = ParameterClient(self.address, context.config.parameter_servers, context.transport)
        self.counts = recorder.graph[shard.server]
        self._queued = self._unanswered = 0
        self._begun = -1  # newest epoch that an interval has begun
        self._owners = np.asarray(context.homes)
        self._turn = asyncio.Semaphore(1) if context.config.mode == "no-pipe" else None
        self._block_counts: dict[tuple[int, int], np.ndarray] = {}
        self._quorums: dict[tuple[int, Stamps], Quorum | None] = {}
        self._pieces: dict[tuple[int, int], list[Piece]] = {}
        plan, make = context.plan, abstract_array if context.abstract else np.zeros
        self.buffers = [
            RowBuffer(shard, entry.direction, row_shape(entry.var), type_of(entry.var).dtype, make)
            for entry in plan.publications
        ]
        self.merges = {
            step.index: MergeBuffer(shard, row_shape(step.writes[0]), type_of(step.writes[0]).dtype, make)
            for step in plan.steps
            if step.kind == "push"
        }
        self.parts = {
            step.index: PartsBuffer(
                len(context.homes),
                [(type_of(one.outvars[0]).shape, type_of(one.outvars[0]).dtype) for one in step.equations],
            )
            for step in plan.steps
            if step.kind == "sum"
        }
        self._last_push = (-1, *plan.stages_with_sums)[-1]
        self._last_sent = {  # last publication that an interval sends to a peer in an epoch
            (interval, peer): number
            for step in plan.epoch
            for number in step.publishes
            for interval, sends in enumerate(shard.sends[plan.publications[number].direction])
            for peer, _ in sends
        }
        self._senders = {direction: _senders(sends) for direction, sends in shard.sends.items()}
        self.peers = [server for server in np.unique(self._owners).tolist() if server != shard.server]
        self._addresses = {peer: Address(context.role, peer) for peer in self.peers}
        context.transport.register(self.address, self)

    def metrics(self, epoch: int) -> GraphServerMetrics:
        """Return the metrics of an epoch that all intervals have finished; call once per epoch, in order."""
        return self.counts.take(epoch).metrics(epoch, self.shard.server, self.workers.slots)

    @property
    def num_intervals(self) -> int:
        """Number of intervals of this server."""
        return self.shard.num_intervals

    @property
    def intervals(self) -> range:
        """Numbers of this server's intervals in the whole graph."""
        return range(self.first_interval, self.first_interval + self.num_intervals)

    def lower_slots(self, most: int) -> None:
        """Limit the number of concurrent tensor tasks to `most` (≥ 1) from now on."""
        limit = self.controller.limit
        limit.set(min(limit.slots, most))
        if self.autotuner is not None:
            self.autotuner.lower(most)

    def release(self) -> None:
        """Free the buffers that only steps before training read, after all intervals have run those steps."""
        for number in self.context.plan.publications_of_once:
            self.buffers[number].release()

    def changing_buffers(self) -> list[tuple[int, RowBuffer]]:
        """Return the buffers of publications that change between epochs, with the numbers of the publications."""
        entries = zip(self.context.plan.publications, self.buffers, strict=True)
        return [(number, buffer) for number, (entry, buffer) in enumerate(entries) if not entry.constant]

    def changing_parts(self) -> dict[int, PartsBuffer]:
        """Return the buffers in `parts` that change between epochs."""
        return {step.index: self.parts[step.index] for step in self.context.plan.epoch if step.kind == "sum"}

    # Operations of an interval.

    async def pause(self, epoch: int, number: int) -> None:
        """Occupy all threads if this server straggles in an epoch that the interval is the first to begin."""
        times = self.context.times
        if times is None or epoch <= self._begun:
            return
        self._begun = epoch
        if seconds := times.pause(self.shard.server, epoch):
            slots = range(self.workers.slots)
            requests = [Request(lambda: None, seconds, (epoch, number, -1, slot)) for slot in slots]
            await self.workers.run_all(requests, lambda _place, _timed: None)

    async def publish(self, number: int, current: IntervalPass) -> None:
        """Write the pass's rows of a value to the buffer, and send its boundary rows to the peers with these ghosts."""
        publication, buffer = self.context.plan.publications[number], self.buffers[number]
        first, last = self.bounds(current)
        rows = np.asarray(current.value(publication.var))[: last - first]
        await buffer.publish(current.interval, rows, current.epoch)

        def message(places: np.ndarray) -> RowsMessage:
            sent = rows if len(places) == len(rows) else taken(rows, places, first)  # places are in ascending order
            return RowsMessage(number, current.number, current.epoch, sent, current.exact)

        # In a synchronous epoch, a reader of one interval's rows also waits for the rows of the other intervals.
        behind: set[int] = set()
        if self.required(current) == current.epoch:
            behind = {interval for interval, epoch in enumerate(buffer.own_epochs()) if epoch < current.epoch}
        senders, row_bytes = self._senders[publication.direction], rows[:1].nbytes
        task = len(self.context.plan.program.tasks) + number
        at_once = self.context.window is None and self._turn is None
        for peer, places in self.shard.sends[publication.direction][current.interval]:
            waiting: Waiting = "sender" if self._last_sent.get((current.interval, peer)) == number else "receiver"
            if behind and not behind.isdisjoint(senders[peer]):
                waiting = "nobody"
            order, num_bytes = (current.epoch, current.number, task, peer), len(places) * row_bytes
            if at_once:  # without a coroutine per message, because messages dominate simulations
                self._post(current, peer, message(places), num_bytes, order, waiting=waiting)
            else:
                await self._send(current, peer, functools.partial(message, places), num_bytes, order, waiting=waiting)

    async def push(self, step: Step, current: IntervalPass) -> None:
        """Send a step's part of the gradient to the interval's parameter server while the interval continues."""
        sums = {str(place): np.asarray(current.values[var]) for place, var in enumerate(step.sums)}
        # The parameter server cannot use the other parts before the last one arrives.
        waiting: Waiting = "sender" if step.index == self._last_push else "nobody"

        def then(_: float, error: Exception | None) -> None:
            if error is None:
                current.pending.end()

        def post(waiting: Waiting) -> None:
            current.pending.begin()
            self.parameters.push(current.number, current.epoch, step.index, sums, waiting=waiting, then=then)

        await self._start(current, post, waiting)

    async def finish(self, current: IntervalPass) -> None:
        """Wait until all messages of the pass have been delivered."""
        await current.pending.nothing()

    # Operations for steps.

    def bounds(self, current: IntervalPass) -> tuple[int, int]:
        """Return the first and last bound of the interval's rows on this server."""
        return self.shard.bounds[current.interval], self.shard.bounds[current.interval + 1]

    def required(self, current: IntervalPass) -> int:
        """Return the oldest epoch of rows that an interval may read in its epoch."""
        return current.epoch if current.exact else self.gate.allowance.required_row_epoch(current.epoch)

    async def wait(self, number: int, current: IntervalPass) -> None:
        """Wait until the rows of a publication meet the staleness bound and the freshness quorum."""
        stamps = self.buffers[number].stamps
        if self.context.plan.publications[number].constant:
            await stamps.wait(-1)
            return

        def read() -> BlocksRead:
            counts = self.block_counts(number, current.interval)
            return BlocksRead(counts, current.interval, np.arange(len(counts)) < self.num_intervals)

        await self.wait_for(stamps, current, read)

    async def wait_for(self, stamps: Stamps, current: IntervalPass, read: Callable[[], BlocksRead]) -> None:
        """Wait until an interval's rows in a buffer meet the staleness bound and the freshness quorum.

        Args:
            stamps: Epochs of the buffer's blocks.
            current: The reading interval and its epoch.
            read: Returns the rows that the interval reads in every epoch.
        """
        required = self.required(current)
        await self._wait(stamps, current, required)
        if required >= current.epoch:
            return
        key = (current.interval, stamps)
        if key not in self._quorums:
            self._quorums[key] = self.context.asynchrony.freshness.quorum(read())
        if (quorum := self._quorums[key]) is not None:
            await self._wait(stamps, current, current.epoch, quorum)

    async def _wait(self, stamps: Stamps, current: IntervalPass, epoch: int, quorum: Quorum | None = None) -> None:
        begin = self.context.clock.now()
        await stamps.wait(epoch, quorum)
        self.counts.of(current.epoch).rows_seconds += self.context.clock.now() - begin

    async def copy(self, number: int, step: Step, current: IntervalPass) -> None:
        """Copy a publication's rows of the interval's in-neighbors into the pass, once per epoch."""
        if number in current.copies:
            return
        await self.wait(number, current)
        buffer, sources = self.buffers[number], self.shard.unique_sources(current.interval)
        counts = self.block_counts(number, current.interval)

        def work() -> tuple[np.ndarray, Reads]:
            with buffer.guard.reading():
                return taken(buffer.rows, sources), buffer.reads(counts)

        job = Job(step, current, _COPY - number, 0, 2 * len(sources) * buffer.rows[:1].nbytes, "copy")
        current.copies[number], found = (await self.compute(job, work)).value
        if not self.context.plan.publications[number].constant:
            self.recorder.read(self.shard.server, current, found)

    def operand(self, operand: Operand, current: IntervalPass, *, copied: bool) -> np.ndarray:
        """Return the array that a graph operator reads: the pass's rows or edges, its copy, or a buffer."""
        number = operand.publication
        if number is not None:
            array: np.ndarray = current.copies[number] if copied else self.buffers[number].rows
            return array
        array = np.asarray(current.value(operand.var))
        if operand.role == "edge":
            return array
        first, last = self.bounds(current)
        return array[: last - first]

    def pieces(self, step: Step, interval: int, rows: RowRange) -> list[Piece]:
        """Return the pieces of an operator's rows; they are the same in every epoch."""
        key = (step.index, interval)
        if key not in self._pieces:
            self._pieces[key] = pieces(step, rows, self.context.config.edge_chunk)
        return self._pieces[key]

    def block_counts(self, number: int, interval: int) -> np.ndarray:
        """Return the number of distinct rows that an interval reads from each block of a publication's buffer."""
        key = (number, interval)
        if key not in self._block_counts:
            direction = self.context.plan.publications[number].direction
            self._block_counts[key] = self.shard.block_counts(direction, interval)
        return self._block_counts[key]

    def owners_of(self, ghosts: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield each owner of some of these ghosts of `merge`: the peer, its first ghost, and a mask of its ghosts."""
        bounds = self.shard.merge().ghost_bounds
        owners = self._owners[np.searchsorted(bounds, ghosts, side="right") - 1]
        for peer in np.unique(owners).tolist():
            yield peer, int(bounds[np.searchsorted(self._owners, peer)]), owners == peer

    async def compute(self, job: Job, work: Callable[[], T]) -> Timed[T]:
        """Run a job on this server's threads."""
        request, timed = self._asked(job, work), None
        try:
            async with self._one_turn():
                timed = await self.workers.run(
                    work, seconds=request.seconds, order=request.order, effort=request.effort
                )
                return timed
        finally:
            self._ended(job, timed)

    async def compute_all(self, jobs: Sequence[tuple[Job, Callable[[], T]]]) -> list[Timed[T]]:
        """Run several jobs on this server's threads."""
        if len(jobs) == 1 or self._turn is not None:
            return await all_of([self.compute(job, work) for job, work in jobs])
        requests = [self._asked(job, work) for job, work in jobs]
        return await self.workers.run_all(requests, lambda place, timed: self._ended(jobs[place][0], timed))

    def _asked(self, job: Job, work: Callable[[], T]) -> Request[T]:
        model, current = self.context.times, job.current
        order = (current.epoch, current.number, job.step.index, job.place)
        seconds: Duration = 0.0
        if model is not None:
            server = self.shard.server
            seconds = model.graph_task(
                order, flops=job.flops, bytes=job.bytes, server=server, rows=job.rows, elementwise=job.elementwise
            )
        effort: int | None = job.flops + job.bytes
        if job.elementwise is not None:
            effort = stage_effort(job.step, self.context.sizes.of(job.step))
        self._queue(1)
        self.counts.of(current.epoch).graph_queued(max(0, self._queued - self.workers.slots))
        return Request(work, seconds, order, effort)

    def _ended(self, job: Job, timed: Timed[Any] | None) -> None:
        self._queue(-1)
        if timed is not None:
            times = (timed.start, timed.end)
            self.placement.measured(job.step, timed.end - timed.start, on_functions=False)
            self.recorder.graph_task(job.label, self.shard.server, job.current, times=times, task=job.step.index)

    async def ask_worker(self, step: Step, current: IntervalPass, task: TensorTask) -> tuple[Any, ...]:
        """Run a stage on a tensor worker.

        Raises:
            TaskFailedError: The task failed too often.
        """
        self._unanswered += 1
        self.counts.of(current.epoch).tensor_queued(self._unanswered)
        try:
            async with self._one_turn():
                result = await self.controller.run(task)
        finally:
            self._unanswered -= 1
        times = (result.start, result.end)
        self.placement.measured(step, result.end - result.start, on_functions=True)
        self.recorder.tensor_task(step.label, self.shard.server, current, times=times, task=step.index)
        return result.values

    async def send(
        self, current: IntervalPass, peer: int, message: Message, order: tuple[int, ...], *, num_bytes: int
    ) -> None:
        """Send a message to a peer while the interval continues.

        Args:
            current: Pass that sends the message. It ends only when all its messages are acknowledged, so the message is
                urgent for the sender.
            peer: Index of the receiving server.
            message: The message.
            order: Unique key of the message, see `Transport.request`.
            num_bytes: Size of its rows in bytes.
        """
        await self._send(current, peer, lambda: message, num_bytes, order, waiting="sender")

    async def _send(
        self,
        current: IntervalPass,
        peer: int,
        make: Callable[[], Message],
        num_bytes: int,
        order: tuple[int, ...],
        *,
        waiting: Waiting,
    ) -> None:
        """Wait until the window admits a message of this size, then create it (which may copy rows) and send it."""
        window = self.context.window
        if window is not None:
            await window.enter(num_bytes)
        message = make()
        await self._start(
            current, lambda found: self._post(current, peer, message, num_bytes, order, waiting=found), waiting
        )

    def _post(
        self,
        current: IntervalPass,
        peer: int,
        message: Message,
        num_bytes: int,
        order: tuple[int, ...],
        *,
        waiting: Waiting,
    ) -> None:
        current.pending.begin()
        kind, label = _KINDS[type(message)]
        self.context.transport.post(
            self.address,
            self._addresses[peer],
            kind,
            message,
            num_bytes=num_bytes + HEADER_BYTES,
            order=order,
            waiting=waiting,
            then=_Sent(self, current, _to(label, peer), num_bytes),
        )

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        """Handle a message of a peer; a repeated message changes nothing."""
        if kind == "rows":
            reception = self._reception(payload.epoch, exact=payload.exact)
            await self.buffers[payload.publication].receive(payload.interval, payload.rows, payload.epoch, reception)
        elif kind == "sums":
            reception = self._reception(int(payload.epochs.max()), exact=payload.exact)
            places, epochs, rows = payload.places, payload.epochs, payload.rows
            await self.merges[payload.step].receive(sender.index, places, epochs, rows, reception)
        elif kind == "parts":
            self.parts[payload.step].write(payload.intervals, payload.epoch, payload.rows)
        else:
            raise ValueError(f"a graph server takes rows, sums and parts, got {kind!r}")

    def _reception(self, epoch: int, *, exact: bool) -> ExponentialMean | None:
        """Return the smoothing of rows of this epoch; None for exact rows, as in synchronous training."""
        exact = exact or epoch < 0 or self.gate.allowance.synchronous(epoch)
        return None if exact else self.context.asynchrony.reception

    async def _start(self, current: IntervalPass, post: Callable[[Waiting], None], waiting: Waiting) -> None:
        """Post a message; in `no-pipe` mode, wait for its delivery."""
        if self._turn is None:
            post(waiting)
            return
        async with self._turn:
            post("sender")
            await current.pending.nothing()

    def _queue(self, change: int) -> None:
        """Update the number of queued graph tasks, and adapt the limit of concurrent tensor tasks."""
        self._queued += change
        if self.autotuner is not None:
            self.controller.limit.set(self.autotuner.observe(max(0, self._queued - self.workers.slots)))

    def _one_turn(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return contextlib.nullcontext() if self._turn is None else self._turn


@final
class _Sent:
    """Callback for the delivery of a message (`Then`)."""

    __slots__ = ("_begin", "_current", "_label", "_num_bytes", "_server")

    def __init__(self, server: GraphServer, current: IntervalPass, label: str, num_bytes: int) -> None:
        self._server, self._current, self._label, self._num_bytes = server, current, label, num_bytes
        self._begin = server.context.clock.now()

    def __call__(self, ago: float, error: Exception | None) -> None:
        server, current, context = self._server, self._current, self._server.context
        if context.window is not None:
            context.window.leave(self._num_bytes)
        if error is not None:
            note_place(error, current.place(server.shard.server, self._label))
            return
        times, size = (self._begin, context.clock.now() - ago), self._num_bytes + HEADER_BYTES
        server.recorder.message(self._label, server.shard.server, current, times=times, num_bytes=size)
        current.pending.end()


@functools.lru_cache(4096)
def _to(label: str, peer: int) -> str:
    return f"{label} → {peer}"


def _senders(sends: Sequence[Sequence[tuple[int, Any]]]) -> dict[int, list[int]]:
    """Return the intervals that send rows to each peer."""
    found = defaultdict[int, list[int]](list)
    for interval, peers in enumerate(sends):
        for peer, _ in peers:
            found[peer].append(interval)
    return found
