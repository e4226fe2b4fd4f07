"""Cost of a program on a graph of a given size: arithmetic, bytes read along edges, bytes shipped and exchanged.

The costs are estimates from shapes alone, to compare programs and tasks; nothing runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from dorylax.jax_internals import Var, variables
from dorylax.ops.primitives.structure import Direction
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.graph_operators import gathered_bytes, operator_of
from dorylax.program.jaxpr.symbols import SYMBOLS, value_bytes
from dorylax.program.rows.types import GraphArray, Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.steps import lower
from dorylax.program.tasks.task import Task

_ONE_ROW = {SYMBOLS["vertex"]: 1, SYMBOLS["edge"]: 1}


@final
@dataclasses.dataclass(frozen=True)
class TaskCost:
    """The cost of running one task over the whole graph.

    Attributes:
        flops: Operations (`flops.equation_flops`).
        gathered_bytes: Bytes that a graph task reads (`jaxpr.graph_operators.gathered_bytes`); 0 for other tasks.
        row_bytes_in: Bytes of rows of vertices or edges that it reads, without the graph's arrays.
        row_bytes_out: Bytes of rows that it writes.
        parameter_bytes: Bytes of values without rows that it reads (parameters, seeds of random bits) or writes (sums over
            rows, such as gradients), counted once, although every interval reads and writes them.
        shipped_bytes: Bytes that cross between servers and workers. For a stage on a worker: rows in and out, and
            `parameter_bytes` for each interval (without the model's parameters if workers keep them). 0 for other tasks.
    """

    flops: int
    gathered_bytes: int
    row_bytes_in: int
    row_bytes_out: int
    parameter_bytes: int
    shipped_bytes: int


@final
@dataclasses.dataclass(frozen=True)
class Totals:
    """Sums over tasks.

    Attributes:
        flops, gathered_bytes, shipped_bytes: As in `TaskCost`; shipped bytes include the parameters that workers keep.
        forward_operators: Number of graph operators of the forward pass, without those that only count.
        backward_operators: Number of graph operators of the backward pass, without those that only count.
    """

    flops: int
    gathered_bytes: int
    shipped_bytes: int
    forward_operators: int
    backward_operators: int


@final
@dataclasses.dataclass(frozen=True)
class ProgramCost:
    """The cost of a program.

    Attributes:
        num_vertices, num_edges: V and E of the estimate.
        intervals: Number of intervals into which rows are cut.
        tasks: Costs of the tasks, in the order of the program.
        once: Sum over the tasks that run once, before training.
        epoch: Sum over the tasks that run in every epoch.
        exchanged_once: Bytes that graph servers send each other before training: boundary rows, sums for ghosts, parts of
            sums over all rows.
        exchanged_epoch: Bytes that graph servers send each other in every epoch.
    """

    num_vertices: int
    num_edges: int
    intervals: int
    tasks: tuple[TaskCost, ...]
    once: Totals
    epoch: Totals
    exchanged_once: int
    exchanged_epoch: int


def cost(
    program: SplitModel,
    num_vertices: int | None = None,
    num_edges: int | None = None,
    *,
    intervals: int = 1,
    workers: int | None = None,
    ghosts: Mapping[Direction, Sequence[int]] | None = None,
) -> ProgramCost:
    """Estimate the cost of a program.

    Args:
        program: A program.
        num_vertices: V (default: that of the traced data).
        num_edges: E (default: that of the traced data).
        intervals: Number of intervals into which rows are cut; a worker receives the parameters with each.
        workers: Number of workers that keep the model's parameters for an epoch, and so fetch all of them once each
            (`dorylax.serverless.handler`); None: every call fetches the parameters it reads.
        ghosts: Number of ghosts of each graph server over in-edges and over out-edges (`graph.partition.report`); None: one
            server, which exchanges no bytes.

    Raises:
        ValueError: A size is neither given nor known, or is negative; there are fewer than 1 interval or worker; or ghosts
            are given, and fused operators only run on a whole graph.
    """
    spec = program.traced.spec
    vertices = _size("num_vertices", "V", num_vertices, spec.num_vertices)
    edges = _size("num_edges", "E", num_edges, spec.num_edges)
    if intervals < 1:
        raise ValueError(f"intervals must be ≥ 1, got {intervals}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be ≥ 1, got {workers}")
    parameters = frozenset(program.traced.variables("param"))
    kept = frozenset() if workers is None else parameters
    sizes = {SYMBOLS["vertex"]: vertices, SYMBOLS["edge"]: edges}
    costs = tuple(_task_cost(program, index, sizes, intervals, kept) for index in range(len(program.tasks)))
    pairs = list(zip(program.tasks, costs, strict=True))
    once = _total((task, one) for task, one in pairs if task.when == "once")
    epoch = _total((task, one) for task, one in pairs if task.when == "epoch")
    if workers is not None:
        fetched = workers * sum(value_bytes(var.aval, sizes) for var in parameters)
        epoch = dataclasses.replace(epoch, shipped_bytes=epoch.shipped_bytes + fetched)
    before, every = (0, 0) if ghosts is None else _exchanged(program, intervals, ghosts)
    return ProgramCost(vertices, edges, intervals, costs, once, epoch, before, every)


def _exchanged(program: SplitModel, intervals: int, ghosts: Mapping[Direction, Sequence[int]]) -> tuple[int, int]:
    """Return the bytes that graph servers send each other before training, and in every epoch."""
    lowered, others = lower(program), len(ghosts["in"]) - 1
    sent = {"once": 0, "epoch": 0}
    for one in lowered.publications:
        sent["once" if one.constant else "epoch"] += sum(ghosts[one.direction]) * value_bytes(one.var.aval, _ONE_ROW)
    for step in lowered.steps:
        if step.kind == "push":
            sent[step.when] += sum(ghosts["in"]) * value_bytes(step.equations[0].outvars[0].aval, _ONE_ROW)
        elif step.kind == "sum":
            parts = [var for equation in step.equations for var in variables(equation.invars)]
            sent[step.when] += intervals * others * sum(value_bytes(var.aval, _ONE_ROW) for var in parts)
    return sent["once"], sent["epoch"]


def is_gather(task: Task) -> bool:
    """Whether a task is a graph operator that moves values between vertices and edges, not one that counts edges."""
    return task.kind == "graph" and operator_of(task.equations[0]).label != "count"


def _size(name: str, symbol: str, given: int | None, known: int | None) -> int:
    size = known if given is None else given
    if size is None:
        raise ValueError(
            f"{name} is not known: the model was traced without it. Pass {name} ({symbol} of the graph), or trace with "
            f"DataSpec(…, {name}=…)"
        )
    if size < 0:
        raise ValueError(f"{name} must be ≥ 0, got {size}")
    return size


def _task_cost(
    program: SplitModel, index: int, sizes: Mapping[str, int], intervals: int, kept: frozenset[Var]
) -> TaskCost:
    task, interface, types = program.tasks[index], program.interfaces[index], program.analysis.types

    def total(values: Iterable[Var], rows: bool) -> int:
        return sum(
            value_bytes(var.aval, sizes)
            for var in values
            if isinstance(types[var], Rows) == rows and not isinstance(types[var], GraphArray)
        )

    rows_in, rows_out = total(interface.reads, True), total(interface.writes, True)
    parameters = total(interface.reads, False) + total(interface.writes, False)
    shipped = 0
    if task.kind == "stage" and task.place == "worker":
        with_call = parameters - sum(value_bytes(var.aval, sizes) for var in interface.reads if var in kept)
        shipped = rows_in + rows_out + intervals * with_call
    return TaskCost(
        flops=sum(equation_flops(equation, sizes) for equation in task.equations),
        gathered_bytes=gathered_bytes(task.equations[0], sizes) if task.kind == "graph" else 0,
        row_bytes_in=rows_in,
        row_bytes_out=rows_out,
        parameter_bytes=parameters,
        shipped_bytes=shipped,
    )


def _total(pairs: Iterable[tuple[Task, TaskCost]]) -> Totals:
    chosen = list(pairs)
    gathers = [task.phase for task, _ in chosen if is_gather(task)]
    return Totals(
        flops=sum(one.flops for _, one in chosen),
        gathered_bytes=sum(one.gathered_bytes for _, one in chosen),
        shipped_bytes=sum(one.shipped_bytes for _, one in chosen),
        forward_operators=gathers.count("forward"),
        backward_operators=gathers.count("backward"),
    )
