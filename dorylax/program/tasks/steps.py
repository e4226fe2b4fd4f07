"""The steps of a program: its tasks in order, with the role of every value that they read and write.

Every back end executes this list. Graph servers run it interval by interval (`dorylax.pipeline`). One machine with little
memory runs it in sweeps over data on disk (`dorylax.streaming`). Lowering needs neither the graph nor its size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

from dorylax.jax_internals import JaxprEqn, Var
from dorylax.ops.primitives.operator import Role
from dorylax.ops.primitives.structure import Direction
from dorylax.ops.row_operators import operator_on_rows
from dorylax.program.jaxpr.graph_operators import Storage, dense_operands, read_along
from dorylax.program.jaxpr.symbols import Space
from dorylax.program.rows.types import GraphArray, Rows, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.program.tasks.task import When

Kind = Literal["stage", "gather", "push", "driver", "sum", "output"]


@final
@dataclasses.dataclass(frozen=True)
class Publication:
    """A value that is read through edges.

    Attributes:
        var: The value, rows of vertices.
        direction: "in" for reads by sources of in-edges, "out" for reads by destinations of out-edges.
        constant: Whether the value is the same in every epoch.
        copied: Whether all reads of an interval in an epoch must return the same rows, because its backward pass or a second
            operator reads them again.
    """

    var: Var
    direction: Direction
    constant: bool
    copied: bool


class Operand(NamedTuple):
    """A dense operand of a graph operator.

    Attributes:
        var: The value.
        role: Row that an entry reads: the row's own, the neighbor's, or the edge's.
        publication: Number of the publication if the value is read through edges; None for own rows and edges.
    """

    var: Var
    role: Role
    publication: int | None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One task of the program.

    Attributes:
        index: Index of the task in the program.
        kind: "stage"; "gather" for graph operators that compute own rows or in-edges; "push" for graph operators that sum
            values of in-edges per source; "driver"; "sum" for the completion of sums over all rows; "output" (no task)
            to hand over rows.
        when: Once before training, or in every epoch.
        space: Space of the written rows; None for the driver.
        reads: Values that the task reads, without the graph's arrays.
        writes: Values that the task writes for other tasks.
        sources: Source of each value that a stage reads; empty for other kinds.
        targets: Target of each value that a stage writes; empty for other kinds.
        operands: Dense operands of a graph operator.
        equations: Equations of the task.
        publishes: Numbers of the publications of its results.
        label: Label in the paper's vocabulary: GA, AV, SC, AE, ∇…; set by `pipeline.plan`, as are the following.
        on_worker: Whether a tensor worker runs the step instead of the graph server.
        sums: Results sent to parameter servers: sums over rows, and values without rows that contribute to the gradient or
            to the model's new state.
        forget: Private values that no later step of the epoch reads.
    """

    index: int
    kind: Kind
    when: When
    space: Space | None
    reads: tuple[Var, ...]
    writes: tuple[Var, ...]
    sources: tuple[OperandSource, ...] = ()
    targets: tuple[ResultTarget, ...] = ()
    operands: tuple[Operand, ...] = ()
    equations: tuple[JaxprEqn, ...] = ()
    publishes: tuple[int, ...] = ()
    label: str = ""
    on_worker: bool = False
    sums: tuple[Var, ...] = ()
    forget: tuple[Var, ...] = ()

    @property
    def operator(self) -> str:
        """Name of a graph operator's primitive."""
        return self.equations[0].primitive.name

    @property
    def params(self) -> Mapping[str, Any]:
        """Static parameters of a graph operator."""
        return self.equations[0].params

    @property
    def side(self) -> Direction:
        """Direction of the edges of the rows that a graph operator reads: "in" or "out"."""
        return operator_on_rows(self.operator).side(self.params)

    @cached_property
    def own_rows(self) -> tuple[Var, ...]:
        """Values with rows of which it reads only its own rows or edges."""
        if self.kind == "stage":
            pairs = zip(self.reads, self.sources, strict=True)
            return tuple(var for var, source in pairs if source.source == "rows")
        if self.kind == "output":
            return self.reads
        return tuple(dict.fromkeys(one.var for one in self.operands if one.publication is None))

    @cached_property
    def through_edges(self) -> tuple[Var, ...]:
        """Values that it reads through edges."""
        return tuple(dict.fromkeys(one.var for one in self.operands if one.publication is not None))


class Lowered(NamedTuple):
    """A program as steps.

    Attributes:
        steps: All tasks, in order.
        publications: Values that are read through edges.
        constants: Values that are the same in every epoch: data, and results of tasks that run once.
    """

    steps: tuple[Step, ...]
    publications: tuple[Publication, ...]
    constants: frozenset[Var]


def lower(program: SplitModel, storage: Storage = "sharded") -> Lowered:
    """Return the steps of a program, which are kept as long as the program.

    Args:
        program: The program.
        storage: Edges by source that the back end holds; operators over other out-edges are pushes.
    """
    found: dict[Storage, Lowered] = program.__dict__.setdefault("lowered", {})
    if storage not in found:
        found[storage] = _lower(program, storage)
    return found[storage]


def _lower(program: SplitModel, storage: Storage) -> Lowered:
    analysis, interfaces = program.analysis, program.interfaces
    types = analysis.types
    inputs = list(zip(program.traced.step.jaxpr.invars, program.traced.inputs, strict=True))
    constants = {var for var, entry in inputs if entry.of_data}
    constants.update(var for k, task in enumerate(program.tasks) if task.when == "once" for var in interfaces[k].writes)
    leaves = {var: leaf for leaf, var in enumerate(program.traced.variables("param"))}
    publications: dict[tuple[Var, Direction], Publication] = {}
    along: dict[int, tuple[Direction, Role]] = {}
    for k, task in enumerate(program.tasks):
        if task.kind != "graph":
            continue
        side, through = along[k] = read_along(task.equations[0], storage)
        for var, role in dense_operands(task.equations[0]):
            if role == through:
                again = (var, side) in publications or task.phase == "backward"
                changes = var not in constants and var not in analysis.backward
                publications[var, side] = Publication(var, side, var in constants, changes and side == "in" and again)
    numbers = {key: number for number, key in enumerate(publications)}

    def source(var: Var) -> OperandSource:
        found = types[var]
        if isinstance(found, Rows):
            return OperandSource("rows", found.axis, found.factor, zero=var in analysis.weighted)
        return OperandSource("weights", leaf=leaves[var]) if var in leaves else OperandSource("free")

    def target(var: Var) -> ResultTarget:
        found = types[var]
        if isinstance(found, Rows):
            return ResultTarget("rows", found.axis, found.factor)
        return ResultTarget("sums" if isinstance(found, Summed) else "free")

    steps = []
    for k, (task, interface) in enumerate(zip(program.tasks, interfaces, strict=True)):
        reads = tuple(var for var in interface.reads if not isinstance(types[var], GraphArray))
        operands: tuple[Operand, ...] = ()
        kind: Kind = "gather" if task.kind == "graph" else task.kind
        if task.kind == "graph":
            side, through = along[k]
            kind = "push" if through == "own" else "gather"
            operands = tuple(
                Operand(var, role, numbers[var, side] if role == through else None)
                for var, role in dense_operands(task.equations[0])
            )
        step = Step(
            index=k,
            kind=kind,
            when=task.when,
            space=task.space,
            reads=reads,
            writes=interface.writes,
            sources=tuple(map(source, reads)) if kind == "stage" else (),
            targets=tuple(map(target, interface.writes)) if kind == "stage" else (),
            operands=operands,
            equations=task.equations,
            publishes=tuple(number for (var, _), number in numbers.items() if var in interface.writes),
        )
        steps.append(step)
    return Lowered(tuple(steps), tuple(publications.values()), frozenset(constants))
