"""Graph operators that compute an interval's own vertices or in-edges: gathers, scatters to edges, softmax.

In asynchronous training, an operator reads the interval's copy of its neighbors' rows where the backward pass reads them
again. Otherwise it reads the server's buffers directly.
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
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.operators import fill_padding, results_for, row_range, work_on
from dorylax.program.tasks.steps import Step


async def run(server: GraphServer, step: Step, current: IntervalPass) -> None:
    """Run a gather."""
    first, last = server.bounds(current)
    publications = [operand.publication for operand in step.operands if operand.publication is not None]
    copied = server.context.copies_rows and any(
        server.context.plan.publications[number].copied for number in publications
    )
    if copied:
        for number in publications:
            await server.copy(number, step, current)
        rows = row_range(server.shard.compact(current.interval), 0, last - first)
    else:
        for number in publications:
            await server.wait(number, current)
        rows = row_range(server.shard.incoming if step.side == "in" else server.shard.outgoing, first, last)
    operands = [(operand.role, server.operand(operand, current, copied=copied)) for operand in step.operands]
    entries = int(rows.offsets[-1] - rows.offsets[0])
    context = server.context
    results = results_for(step, last - first, entries, context.sizes.vertices, empty=context.empty)
    await operate(server, step, current, operands, rows, results=results, publications=[] if copied else publications)
    fill_padding(results, step, last - first)
    outputs = zip(step.equations[0].outvars, results, strict=True)
    current.values.update((var, value) for var, value in outputs if var in step.writes)


async def operate(
    server: GraphServer,
    step: Step,
    current: IntervalPass,
    operands: Sequence[tuple[Role, np.ndarray]],
    rows: RowRange,
    *,
    results: Sequence[np.ndarray],
    publications: Sequence[int] = (),
) -> None:
    """Run an operator in pieces on the graph threads. The first piece counts the rows that the operator reads.

    Args:
        server: Server of the interval.
        step: The operator.
        current: The interval and its epoch.
        operands: Arrays with their roles.
        rows: Rows of the operator.
        results: Arrays for the results.
        publications: Numbers of the publications whose buffers are among the operands.
    """
    numbers, context = sorted(set(publications)), server.context
    buffers = [server.buffers[number] for number in numbers]
    counted = [
        (server.buffers[number], server.block_counts(number, current.interval))
        for number in numbers
        if not context.plan.publications[number].constant
    ]
    found: list[Reads] = []

    def guarded(place: int, work: Callable[[], None]) -> Callable[[], None]:
        if place and context.abstract:
            return work  # reads no buffer

        def run_piece() -> None:
            with contextlib.ExitStack() as stack:
                for buffer in buffers:
                    stack.enter_context(buffer.guard.reading())
                if place == 0:
                    found.extend(buffer.reads(counts) for buffer, counts in counted)
                work()

        return run_piece

    read = None
    if context.times is not None and context.times.by_rows:
        read = _rows_read(server, current, operands, publications)
    jobs = []
    for place, piece in enumerate(server.pieces(step, current.interval, rows)):
        job = Job(step, current, place, piece.flops, piece.bytes, step.label, read)
        jobs.append((job, guarded(place, work_on(step, operands, rows, piece, results))))
    await server.compute_all(jobs)
    for one in found:
        server.recorder.read(server.shard.server, current, one)


def _rows_read(
    server: GraphServer,
    current: IntervalPass,
    operands: Sequence[tuple[Role, np.ndarray]],
    publications: Sequence[int],
) -> RowsRead | None:
    """Return the neighbors' rows that an operator reads: some rows of a buffer, or all rows of a copy."""
    arrays = [array for role, array in operands if role == "neighbour"]
    if not arrays:
        return None
    counts = [int(server.block_counts(number, current.interval).sum()) for number in publications]
    widths = [array.nbytes // max(1, len(array)) for array in arrays]
    number = max(counts, default=len(arrays[0]))
    return RowsRead(max(widths), number * sum(widths))
