"""Graph operators that give an interval's own vertices or in-edges: gathers, scatters to edges, softmax.

Where an interval's rows of neighbours are copied (asynchronous training), the operator reads the copy in the interval's own
numbering; else it reads the server's buffers as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from dorylax.cost import RowsRead
from dorylax.ops.primitives.operator import Role
from dorylax.ops.row_loops.rows import RowRange
from dorylax.pipeline.buffers import Reads
from dorylax.pipeline.graph_server import GraphServer, Job
from dorylax.pipeline.operators import fill_padding, results_for, row_range, work_on
from dorylax.pipeline.plan import Step
from dorylax.pipeline.visit import Visit


async def run(server: GraphServer, step: Step, visit: Visit) -> None:
    """See `RunStep`."""
    first, last = server.bounds(visit)
    publications = [operand.publication for operand in step.operands if operand.publication is not None]
    copied = server.context.copies_rows and any(
        server.context.plan.publications[number].copied for number in publications
    )
    if copied:
        for number in publications:
            await server.copy(number, step, visit)
        rows = row_range(server.shard.compact(visit.interval), 0, last - first)
    else:
        for number in publications:
            await server.wait(number, visit)
        rows = row_range(server.shard.incoming if step.side == "in" else server.shard.outgoing, first, last)
    operands = [(operand.role, server.operand(operand, visit, copied=copied)) for operand in step.operands]
    entries = int(rows.offsets[-1] - rows.offsets[0])
    context = server.context
    results = results_for(step, last - first, entries, context.sizes.vertices, empty=context.empty)
    await operate(server, step, visit, Reading(operands, rows, [] if copied else publications), results)
    fill_padding(results, step, last - first)
    outputs = zip(step.equations[0].outvars, results, strict=True)
    visit.values.update((var, value) for var, value in outputs if var in step.writes)


class Reading:
    """What an operator reads.

    Args:
        operands: arrays with what they are read by.
        rows: over which rows it runs.
        publications: those whose buffers are among the operands.
    """

    def __init__(
        self, operands: Sequence[tuple[Role, np.ndarray]], rows: RowRange, publications: Sequence[int] = ()
    ) -> None:
        self.operands, self.rows, self.publications = operands, rows, publications


async def operate(
    server: GraphServer, step: Step, visit: Visit, reading: Reading, results: Sequence[np.ndarray]
) -> None:
    """Runs an operator in pieces on the graph threads; what it reads is counted when its first piece reads."""
    numbers, context = sorted(set(reading.publications)), server.context
    buffers = [server.buffers[number] for number in numbers]
    counted = [
        (server.buffers[number], server.block_counts(number, visit.interval))
        for number in numbers
        if not context.plan.publications[number].constant
    ]
    found: list[Reads] = []

    def guarded(place: int, work: Callable[[], None]) -> Callable[[], None]:
        if place and context.abstract:
            return work  # nobody reads anything

        def run_piece() -> None:
            with contextlib.ExitStack() as stack:
                for buffer in buffers:
                    stack.enter_context(buffer.guard.reading())
                if place == 0:
                    found.extend(buffer.reads(counts) for buffer, counts in counted)
                work()

        return run_piece

    jobs = []
    rows = None if context.times is None or not context.times.by_rows else _rows_read(server, visit, reading)
    for place, piece in enumerate(server.pieces(step, visit.interval, reading.rows)):
        job = Job(step, visit, place, piece.flops, piece.bytes, step.label, rows)
        jobs.append((job, guarded(place, work_on(step, reading.operands, reading.rows, piece, results))))
    await server.compute_all(jobs)
    for one in found:
        server.recorder.read(server.shard.server, visit, one)


def _rows_read(server: GraphServer, visit: Visit, reading: Reading) -> RowsRead | None:
    """The rows of neighbours that an operator reads: of a buffer only some, of a copy all."""
    arrays = [array for role, array in reading.operands if role == "neighbour"]
    if not arrays:
        return None
    counts = [int(server.block_counts(number, visit.interval).sum()) for number in reading.publications]
    widths = [array.nbytes // max(1, len(array)) for array in arrays]
    number = max(counts, default=len(arrays[0]))
    return RowsRead(max(widths), number * sum(widths))
