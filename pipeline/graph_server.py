"""A graph server: owns a shard, runs the graph tasks of its intervals, exchanges boundary rows with its peers.

Its steps are coroutines; what computes is handed to its workers, what travels to the transport. A value that other
intervals read through edges lies in a buffer here (`dorylax.pipeline.buffers`); everything else stays with the visit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.clock import Clock, Timed
from dorylax.cost import TimeModel
from dorylax.graph.shard import Shard
from dorylax.jax_internals import type_of
from dorylax.ops import row_operators
from dorylax.ops.row_operators import Role, RowRange
from dorylax.pipeline.buffers import MergeBuffer, Reads, RowBuffer
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.operators import Piece, fill_padding, pieces, results_for, row_range, row_shape, work_on
from dorylax.pipeline.parameters.delivery import deliver
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.plan import Operand, Plan, Step
from dorylax.pipeline.stages import StageFunction, StageSizes, cut, pad, stage_cost, together
from dorylax.pipeline.timeline import Resource, Span, Timeline
from dorylax.pipeline.transport.base import Address, Transport
from dorylax.pipeline.visit import Visit
from dorylax.program.rows.types import Rows
from dorylax.serverless.backends.base import Backend
from dorylax.serverless.task import TaskFailedError, TaskKey, TensorTask

ATTEMPTS = 10
"""So often a task or a message is tried before the run gives up."""

_HEADER_BYTES = 64  # of a message besides its rows: which value, interval and epoch


class RowsMessage(NamedTuple):
    """Boundary rows of one interval: `publication` and `epoch` say what they are."""

    publication: int
    interval: int
    epoch: int
    rows: np.ndarray


class SumsMessage(NamedTuple):
    """Sums over in-edges per source, for the owner of the sources: `places` among what this peer sends, and their epochs."""

    step: int
    places: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray


class Fabric(NamedTuple):
    """What all graph servers of a run share.

    Attributes:
        plan: the steps.
        sizes: rows of each call of a stage.
        functions: of stages and of the driver's tasks, by number.
        backend: runs tensor tasks.
        parameters: the parameter servers.
        transport: between servers.
        clock: where time comes from.
        times: how long things take in virtual time; None on the real clock.
        timeline: what ran when.
        counters: how much.
        chunk: edges of a chunk.
        keeps: whether intervals keep the rows of neighbours that they have read (asynchronous training).
        required: `(epoch) -> ` the oldest epoch of rows that an interval in that epoch may read.
    """

    plan: Plan
    sizes: StageSizes
    functions: Mapping[int, StageFunction]
    backend: Backend
    parameters: ParameterServers
    transport: Transport
    clock: Clock
    times: TimeModel | None
    timeline: Timeline
    counters: Counters
    chunk: int
    keeps: bool
    required: Callable[[int], int]


@final
class GraphServer:
    """One graph server.

    Args:
        shard: its part of the graph.
        first_interval: the number, in the whole graph, of its first interval.
        owners: the server of each interval of the whole graph.
        threads: how many graph tasks it runs at a time.
        one_at_a_time: whether only one task of any kind runs at a time (`no-pipe`).
        fabric: what it shares with the others.
    """

    def __init__(
        self,
        shard: Shard,
        *,
        first_interval: int,
        owners: Sequence[int],
        threads: int,
        one_at_a_time: bool,
        fabric: Fabric,
    ) -> None:
        self.shard = shard
        self.first_interval = first_interval
        self.address = Address("graph", shard.server)
        self._owners = owners
        self._fabric = fabric
        self._types = fabric.plan.program.facts.types
        self._weighted = fabric.plan.program.facts.weighted
        self._workers = fabric.clock.workers(f"graph {shard.server}", threads)
        self._turn = asyncio.Semaphore(1) if one_at_a_time else None
        self._block_counts: dict[tuple[int, int], np.ndarray] = {}
        self._pieces: dict[tuple[int, int], list[Piece]] = {}
        self.buffers = [
            RowBuffer(shard, entry.direction, row_shape(entry.var), type_of(entry.var).dtype)
            for entry in fabric.plan.publications
        ]
        self.merges = {
            step.index: MergeBuffer(shard, row_shape(step.writes[0]), type_of(step.writes[0]).dtype)
            for step in (*fabric.plan.once, *fabric.plan.epoch)
            if step.kind == "push"
        }
        fabric.transport.register(self.address, self)

    @property
    def num_intervals(self) -> int:
        """Intervals of this server."""
        return len(self.shard.bounds) - 1

    def changing_buffers(self) -> list[tuple[int, RowBuffer]]:
        """The buffers of what is not the same in every epoch, by number of the publication."""
        entries = zip(self._fabric.plan.publications, self.buffers, strict=True)
        return [(number, buffer) for number, (entry, buffer) in enumerate(entries) if not entry.constant]

    # What an interval does.

    async def run(self, step: Step, visit: Visit) -> None:
        """Runs one step of an interval, up to and including the publication of what it writes.

        Boundary rows and gradients are on their way when it returns (`Visit.background`).

        Raises:
            TaskFailedError: a tensor task failed too often.
        """
        if step.kind == "stage":
            await self._stage(step, visit)
        elif step.kind == "gather":
            await self._gather(step, visit)
        elif step.kind == "push":
            await self._push(step, visit)
        else:
            results = self._fabric.functions[step.index](*(visit.value(var) for var in step.reads))
            visit.values.update(zip(step.writes, results, strict=True))
        for number in step.publishes:
            await self.publish(number, visit)
        if step.sums:
            sums = {str(place): np.asarray(visit.values.pop(var)) for place, var in enumerate(step.sums)}
            await self._send(visit, self._push_sums(step, visit, sums))
        for var in step.forget:
            visit.values.pop(var, None)

    async def publish(self, number: int, visit: Visit) -> None:
        """Publishes the visit's rows of a value here, and sends its boundary rows to the peers that have them as ghosts."""
        publication, buffer = self._fabric.plan.publications[number], self.buffers[number]
        first, last = self._bounds(visit)
        rows = np.asarray(visit.value(publication.var))[: last - first]
        await buffer.publish(visit.interval, rows, visit.epoch)
        for peer, places in self.shard.sends[publication.direction][visit.interval]:
            message = RowsMessage(number, visit.number, visit.epoch, rows[places - first])
            order = (visit.epoch, visit.number, len(self._fabric.plan.program.tasks) + number, peer)
            await self._send(visit, self._deliver(visit, peer, "rows", message, message.rows.nbytes, order))

    async def finish(self, visit: Visit) -> None:
        """Waits until all that the visit has sent is there."""
        while visit.background:
            await visit.background.pop()

    # Steps.

    async def _stage(self, step: Step, visit: Visit) -> None:
        fabric = self._fabric
        count = self._count(step, visit)
        size = fabric.sizes.of(step)
        bounds = list(range(0, count, size)) or [0]
        chunks = [(first, min(first + size, count)) for first in bounds]
        parts = await _all([self._call(step, visit, k, *chunk, count) for k, chunk in enumerate(chunks)])
        if step.space == "vertex":
            results = list(parts[0])
        else:
            results = together(step, parts, [last - first for first, last in chunks], self._types)
        visit.values.update(zip(step.writes, results, strict=True))

    async def _call(self, step: Step, visit: Visit, chunk: int, first: int, last: int, count: int) -> Sequence[Any]:
        """One call of a stage: of all vertices of the interval, or of a chunk of its edges."""
        fabric = self._fabric
        size = fabric.sizes.of(step)
        operands = []
        for var in fabric.plan.program.interfaces[step.index].reads:
            value, found = visit.value(var), self._types[var]
            if isinstance(found, Rows):
                if step.space == "edge" and (first, last) != (0, count):
                    value = cut(value, found, first, last)
                value = pad(value, found, last - first, size, zero=var in self._weighted)
            operands.append(value)
        key = TaskKey(visit.epoch, visit.number, step.index, chunk)
        cost = stage_cost(step, last - first)
        if not step.on_worker:
            function = fabric.functions[step.index]

            def work() -> tuple[Any, ...]:
                return tuple(np.asarray(value) for value in function(*operands))

            timed = await self._compute(
                step.label, step, visit, work, cost.flops, cost.bytes_in + cost.bytes_out, chunk
            )
            return timed.value
        task = TensorTask(key, self.shard.server, tuple(operands), *cost)
        async with self._one_turn():
            result = await _retried(lambda: fabric.backend.run(task), fabric.counters)
        fabric.counters.tensor_tasks += 1
        fabric.counters.calls.add(result.end - result.start)
        self._record(step.label, "tensor", visit, result.start, result.end, step.index)
        return result.values

    async def _gather(self, step: Step, visit: Visit) -> None:
        first, last = self._bounds(visit)
        shard = self.shard
        whole = shard.incoming if step.side == "in" else shard.outgoing
        rows = row_range(whole, first, last)
        publications = [operand.publication for operand in step.operands if operand.publication is not None]
        compact = self._keeps(publications)
        if compact:
            for number in publications:
                await self._keep(number, step, visit)
            rows = row_range(shard.compact(visit.interval), 0, last - first)
        else:
            for number in publications:
                await self._wait(number, visit.epoch)
        operands: list[tuple[Role, np.ndarray]] = []
        for operand in step.operands:
            operands.append((operand.role, self._operand(operand, visit, kept=compact)))
        entries = int(rows.offsets[-1] - rows.offsets[0])
        results = results_for(step, last - first, entries, self._fabric.sizes.vertices)
        reading = [] if compact else publications
        await self._operate(step, visit, operands, rows, results, reading)
        fill_padding(results, step, last - first)
        outputs = zip(step.equations[0].outvars, results, strict=True)
        visit.values.update((var, value) for var, value in outputs if var in step.writes)

    async def _push(self, step: Step, visit: Visit) -> None:
        """Sums what the interval's in-edges hold per source; then reads what all in-edges from its own rows hold."""
        fabric, shard, merge = self._fabric, self.shard, self.merges[step.index]
        first, last = self._bounds(visit)
        transposed = shard.transposed(visit.interval)
        count = len(transposed.offsets) - 1
        publications = [operand.publication for operand in step.operands if operand.publication is not None]
        for number in publications:
            await self._keep(number, step, visit)
        operands: list[tuple[Role, np.ndarray]] = []
        for operand in step.operands:
            operands.append((operand.role, self._operand(operand, visit, kept=True)))
        (partial,) = results_for(step, count, 0, 0)
        await self._operate(step, visit, operands, row_range(transposed, 0, count), [partial], [])
        await merge.publish(visit.interval, partial, visit.epoch)
        ghosts, epochs = merge.due(visit.interval)
        if len(ghosts):
            await self._send_sums(step, visit, ghosts, epochs)
        await merge.wait(self._required(visit.epoch))
        rows = row_range(shard.merge().rows, first, last)
        (result,) = results_for(step, last - first, 0, fabric.sizes.vertices)

        def work() -> Reads:
            with merge.guard.reading():
                found = merge.reads(first, last, visit.epoch)
                row_operators.run(
                    "dorylax_gather_sum", {"direction": "in"}, [merge.rows], rows, out=[result[: last - first]]
                )
                return found

        bytes_read = int(rows.offsets[-1] - rows.offsets[0]) * (result[:1].nbytes + 4)
        timed = await self._compute(step.label, step, visit, work, bytes_read // 4, bytes_read, -1)
        fabric.counters.read(visit.epoch, timed.value)
        fill_padding([result], step, last - first)
        visit.values[step.writes[0]] = result

    async def _send_sums(self, step: Step, visit: Visit, ghosts: np.ndarray, epochs: np.ndarray) -> None:
        merge, bounds = self.merges[step.index], self.shard.ghost_bounds["in"]

        def work() -> np.ndarray:
            with merge.guard.reading():
                return merge.ghost_sums(ghosts)

        row_bytes = merge.rows[:1].nbytes
        timed = await self._compute("∇SC", step, visit, work, 0, 2 * len(ghosts) * row_bytes, -2)
        owners = np.asarray(self._owners)[np.searchsorted(bounds, ghosts, side="right") - 1]
        for peer in np.unique(owners).tolist():
            mine = owners == peer
            start = int(bounds[self._owners.index(peer)])
            message = SumsMessage(step.index, ghosts[mine] - start, epochs[mine], timed.value[mine])
            order = (visit.epoch, visit.number, step.index, peer)
            await self._send(visit, self._deliver(visit, peer, "sums", message, message.rows.nbytes, order))

    # Reading through edges.

    def _keeps(self, publications: Sequence[int]) -> bool:
        return self._fabric.keeps and any(self._fabric.plan.publications[number].kept for number in publications)

    async def _wait(self, number: int, epoch: int) -> None:
        """Until the rows of neighbours are as new as they must be."""
        constant = self._fabric.plan.publications[number].constant
        await self.buffers[number].stamps.wait(-1 if constant else self._required(epoch))

    def _required(self, epoch: int) -> int:
        return -1 if epoch < 0 else self._fabric.required(epoch)

    async def _keep(self, number: int, step: Step, visit: Visit) -> None:
        """Copies the rows of the interval's in-neighbours, once per epoch."""
        if number in visit.kept:
            return
        await self._wait(number, visit.epoch)
        buffer, sources = self.buffers[number], self.shard.unique_sources(visit.interval)
        counts = self._counts(number, visit.interval)

        def work() -> tuple[np.ndarray, Reads]:
            with buffer.guard.reading():
                return buffer.rows[sources], buffer.reads(counts, visit.epoch)

        bytes_read = 2 * len(sources) * buffer.rows[:1].nbytes
        timed = await self._compute("copy", step, visit, work, 0, bytes_read, -3 - number)
        visit.kept[number], found = timed.value
        if not self._fabric.plan.publications[number].constant:
            self._fabric.counters.read(visit.epoch, found)

    def _operand(self, operand: Operand, visit: Visit, *, kept: bool) -> np.ndarray:
        if operand.publication is not None:
            array = visit.kept[operand.publication] if kept else self.buffers[operand.publication].rows
        else:
            array = np.asarray(visit.value(operand.var))
            if operand.role != "edge":
                first, last = self._bounds(visit)
                array = array[: last - first]
        return array

    async def _operate(
        self,
        step: Step,
        visit: Visit,
        operands: Sequence[tuple[Role, np.ndarray]],
        rows: RowRange,
        results: Sequence[np.ndarray],
        reading: Sequence[int],
    ) -> None:
        """Runs an operator in pieces on the graph threads; reads are counted where the first piece makes them."""
        fabric = self._fabric
        buffers = [self.buffers[number] for number in sorted(set(reading))]
        counted = [
            (self.buffers[number], self._counts(number, visit.interval))
            for number in sorted(set(reading))
            if not fabric.plan.publications[number].constant
        ]
        found: list[Reads] = []

        def on_piece(place: int, work: Callable[[], None]) -> Callable[[], None]:
            def guarded() -> None:
                with contextlib.ExitStack() as stack:
                    for buffer in buffers:
                        stack.enter_context(buffer.guard.reading())
                    if place == 0:
                        found.extend(buffer.reads(counts, visit.epoch) for buffer, counts in counted)
                    work()

            return guarded

        key = (step.index, visit.interval)
        if key not in self._pieces:
            self._pieces[key] = pieces(step, rows, fabric.chunk)
        parts = self._pieces[key]
        await _all(
            [
                self._compute(
                    step.label,
                    step,
                    visit,
                    on_piece(place, work_on(step, operands, rows, piece, results)),
                    piece.flops,
                    piece.bytes,
                    place,
                )
                for place, piece in enumerate(parts)
            ]
        )
        for one in found:
            fabric.counters.read(visit.epoch, one)

    def _counts(self, number: int, interval: int) -> np.ndarray:
        """How many different rows of each block of a buffer an interval reads."""
        key = (number, interval)
        if key not in self._block_counts:
            shard, direction = self.shard, self._fabric.plan.publications[number].direction
            if direction == "in":
                sources = shard.unique_sources(interval)
            else:
                first, last = (int(shard.outgoing.offsets[row]) for row in shard.bounds[interval : interval + 2])
                sources = np.unique(shard.outgoing.neighbours[first:last])
            bounds = np.asarray([first for first, _ in self.buffers[number].bounds], np.int64)
            blocks = np.searchsorted(bounds, sources, side="right") - 1
            self._block_counts[key] = np.bincount(blocks, minlength=len(bounds))
        return self._block_counts[key]

    # Workers, messages.

    async def _compute(
        self,
        label: str,
        step: Step,
        visit: Visit,
        work: Callable[[], Any],
        flops: int,
        bytes_read: int,
        place: int,
    ) -> Timed[Any]:
        """Runs graph work on this server's threads."""
        fabric = self._fabric
        order = (visit.epoch, visit.number, step.index, place)
        seconds = 0.0 if fabric.times is None else fabric.times.graph_task(order, flops=flops, bytes=bytes_read)
        async with self._one_turn():
            timed = await self._workers.run(work, seconds=seconds, order=order)
        fabric.counters.graph_tasks += 1
        self._record(label, "graph", visit, timed.start, timed.end, step.index)
        return timed

    async def _send(self, visit: Visit, sending: Coroutine[Any, Any, None]) -> None:
        """Lets a message go its way while the interval goes on; with one task at a time, waits for it."""
        if self._turn is not None:
            async with self._turn:
                await sending
        else:
            visit.background.append(self._fabric.clock.spawn(sending, name=f"message of interval {visit.number}"))

    async def _deliver(
        self, visit: Visit, peer: int, kind: str, message: Any, num_bytes: int, order: tuple[int, ...]
    ) -> None:
        fabric = self._fabric
        begin = fabric.clock.now()
        receiver = Address("graph", peer)
        total = num_bytes + _HEADER_BYTES
        await deliver(fabric.transport, self.address, receiver, kind, message, num_bytes=total, order=order)
        fabric.counters.messages += 1
        fabric.counters.message_bytes += total
        label = "SC" if kind == "rows" else "∇SC"
        self._record(f"{label} → {peer}", "network", visit, begin, fabric.clock.now(), None)

    async def _push_sums(self, step: Step, visit: Visit, sums: dict[str, np.ndarray]) -> None:
        await self._fabric.parameters.push(visit.number, visit.epoch, step.index, sums)

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        """Takes a message of a peer; taking it twice is as taking it once."""
        if kind == "rows":
            await self.buffers[payload.publication].receive(payload.interval, payload.rows, payload.epoch)
        elif kind == "sums":
            await self.merges[payload.step].receive(sender.index, payload.places, payload.epochs, payload.rows)
        else:
            raise ValueError(f"a graph server takes rows and sums, got {kind!r}")

    def _one_turn(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return contextlib.nullcontext() if self._turn is None else self._turn

    def _record(self, name: str, resource: Resource, visit: Visit, start: float, end: float, task: int | None) -> None:
        self._fabric.timeline.add(Span(name, resource, self.shard.server, visit.number, visit.epoch, start, end, task))

    def _bounds(self, visit: Visit) -> tuple[int, int]:
        return self.shard.bounds[visit.interval], self.shard.bounds[visit.interval + 1]

    def _count(self, step: Step, visit: Visit) -> int:
        bounds = self.shard.bounds if step.space == "vertex" else self.shard.edge_bounds
        return bounds[visit.interval + 1] - bounds[visit.interval]


async def _all(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    """All results; without tasks of their own where there is one."""
    if len(awaitables) == 1:
        return [await awaitables[0]]
    return list(await asyncio.gather(*awaitables))


async def _retried(call: Callable[[], Awaitable[Any]], counters: Counters) -> Any:
    """What a call gives whose worker may die."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await call()
        except TaskFailedError:
            counters.retries += 1
    return await call()
