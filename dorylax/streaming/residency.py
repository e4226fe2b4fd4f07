"""What of a run stays in memory, what is read from disk in order, and what is gathered some columns at a time: pure.

What is read through edges must be in memory for all rows while a sweep reads it. Where that is too much, the widest is
gathered in blocks of columns, each of which reads the index once more. What is left of the memory goes to what is read most
often for its bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from dorylax.errors import DorylaxError
from dorylax.jax_internals import Var, is_literal, size_at, type_of, variables
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.streaming.data import read_inputs
from dorylax.streaming.prefetch import BUFFERS, COMPUTED
from dorylax.streaming.schedule import Schedule, Step, Sweep, kept_of_once, schedule
from dorylax.streaming.slices import Slices, slices_for
from dorylax.streaming.units import MOST_EDGE_ROWS, MOST_ENTRIES, Units, cut, most_rows
from dorylax.streaming.writing import PENDING

INDEX: Literal["index"] = "index"
"""What stands for the neighbours of all vertices beside values of the program."""
Value = Var | Literal["index"]
_INDEX_BYTES = 4
_IN_MEMORY = frozenset({"dot_general", "gather", "scatter-add", "sort", "cumsum"})
"""Operations whose results XLA writes to memory."""
_SORTED_BYTES = 28
"""Of each edge of a unit while its edges are put in order of sources."""


class NotStreamedError(DorylaxError, ValueError):
    """A run cannot be streamed: its model or its data are such, or there is too little memory for that, too."""


@final
class TooLittleMemoryError(NotStreamedError):
    """A program cannot be streamed within a budget.

    Attributes:
        missing: bytes that the budget lacks at least.
    """

    def __init__(self, name: str, need: int, budget: int) -> None:
        super().__init__(f"{name} takes {need:,} bytes where it takes least, and {max(0, budget):,} are left")
        self.missing = need - budget


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Where everything of a program lies.

    Attributes:
        program: what runs.
        units: the cut of the rows.
        once, epoch: its sweeps before training, and in every epoch.
        blocked: columns of a block, by the number of the task that gathers them.
        resident: what is read in order, and in memory all the same.
        given: inputs that take no more memory: those that follow from their numbers, or that whoever has them holds.
        needs: bytes in memory at most, for what must be there.
        outputs: rows that are handed over.
        slices: of a unit, one for a thread at a time.
        threads: that compute.
        buffers: units in memory at a time, of what is read in order.
    """

    program: SplitModel
    units: Units
    once: Schedule
    epoch: Schedule
    blocked: Mapping[int, int]
    resident: frozenset[Value]
    given: frozenset[Value]
    needs: int
    outputs: tuple[Var, ...]
    slices: Slices
    threads: int
    buffers: int = BUFFERS

    @property
    def num_vertices(self) -> int:
        """V."""
        return int(self.units.vertices[-1])

    @property
    def num_edges(self) -> int:
        """E."""
        return int(self.units.edges[-1])

    @cached_property
    def whole(self) -> frozenset[Var]:
        """Values that lie in one array in memory while they are needed."""
        return self.once.whole | self.epoch.whole

    @cached_property
    def lasting(self) -> frozenset[Var]:
        """Those of `whole` that are in memory between epochs, too."""
        return frozenset(var for var in self.epoch.whole if var not in self.epoch.made)

    @cached_property
    def lasting_bytes(self) -> int:
        """Bytes in memory between epochs."""
        return sum(
            value_bytes(self.program, var, self.num_vertices, self.num_edges) for var in (*self.resident, *self.lasting)
        )

    @property
    def bytes(self) -> int:
        """Bytes in memory at most."""
        kept = sum(value_bytes(self.program, var, self.num_vertices, self.num_edges) for var in self.resident)
        return self.needs + kept

    @cached_property
    def traffic(self) -> tuple[int, int]:
        """Bytes that an epoch reads, and that it writes."""
        return _traffic(self, self.epoch)

    @cached_property
    def traffic_of_once(self) -> tuple[int, int]:
        """Bytes that are read and written before training."""
        return _traffic(self, self.once)

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes on disk."""
        held = self.num_vertices, self.num_edges
        kept = (self.once.kept | self.epoch.kept) - self.whole
        return sum(value_bytes(self.program, var, *held) for var in kept if var not in self.resident)

    @cached_property
    def index_reads(self) -> int:
        """How often an epoch goes through all edges."""
        return _index_reads(self, self.epoch)


def unit_rows(*programs: SplitModel) -> tuple[int, int]:
    """Rows and edges that a unit may have at most, for programs that share their units."""
    widest, by_edge = 1, False
    for program in programs:
        types = program.analysis.types
        for var, found in types.items():
            if isinstance(found, Rows):
                by_edge |= found.space == "edge" and var not in _inputs(program)
                widest = max(widest, row_bytes(var)) if found.space == "vertex" else widest
    return most_rows(widest), MOST_EDGE_ROWS if by_edge else MOST_ENTRIES


def units_for(offsets: np.ndarray, *programs: SplitModel) -> Units:
    """The units of programs that run on one graph.

    All have as many rows as makes the wanted number of edges on average, so that few have to be padded; but for those where
    so many rows have more than twice as many edges.
    """
    rows, entries = unit_rows(*programs)
    return cut(offsets, _even_rows(len(offsets) - 1, int(offsets[-1]), rows, entries), 2 * entries)


def _even_rows(num_vertices: int, num_edges: int, rows: int, entries: int) -> int:
    return min(rows, max(1, entries * num_vertices // max(1, num_edges)))


def even_units(num_vertices: int, num_edges: int, *programs: SplitModel) -> Units:
    """Units of a graph of which only the size is known, as if all rows were of one length."""
    count = max(1, -(-num_vertices // _even_rows(num_vertices, num_edges, *unit_rows(*programs))))
    return Units(
        np.linspace(0, num_vertices, count + 1).astype(np.int64), np.linspace(0, num_edges, count + 1).astype(np.int64)
    )


def lay_out(
    program: SplitModel,
    units: Units,
    budget: int,
    *,
    symmetric: bool,
    mapped: frozenset[str],
    beside: int = 0,
    threads: int = 1,
) -> Layout:
    """Decides what stays in memory.

    Args:
        program: what runs.
        units: the cut of the rows.
        budget: bytes for rows and the work on a unit.
        symmetric: whether every edge of the graph comes with its reverse.
        mapped: names of those inputs that lie in files, `INDEX` among them; all others are in memory anyway.
        beside: bytes that something else takes between two epochs.
        threads: that compute.

    Raises:
        NotStreamedError: it returns something that has no row per vertex.
        TooLittleMemoryError: the memory is too little.
    """
    traced = program.traced
    found = [atom for atom in traced.step.jaxpr.outvars if not is_literal(atom)]
    types = program.analysis.types
    with_rows = tuple(dict.fromkeys(var for var in found if isinstance(types[var], Rows)))
    for output, atom in zip(traced.outputs, traced.step.jaxpr.outvars, strict=True):
        kind = None if is_literal(atom) else types[atom]
        if isinstance(kind, Rows) and (output.role != "output" or kind.space != "vertex"):
            raise NotStreamedError(
                f"{traced.name} gives {output.role} {output.name} for every {kind.space}, which cannot be streamed: "
                "train it with more memory (single.memory_limit), or on hosts (pipeline.hosts)"
            )
    planner = _Planner(program, units, symmetric, with_rows, mapped, threads=threads)
    return planner.layout(budget, beside)


def row_bytes(var: Var) -> int:
    """Bytes of one row of a value."""
    itemsize: int = type_of(var).dtype.itemsize
    return math.prod(int(size_at(dim, {"n": 1, "e": 1})) for dim in type_of(var).shape) * itemsize


def value_bytes(program: SplitModel, var: Value, vertices: int, edges: int) -> int:
    """Bytes of all rows of a value."""
    if var == INDEX:
        return _INDEX_BYTES * edges
    space = program.analysis.types[var].space  # type: ignore[union-attr]
    return row_bytes(var) * (vertices if space == "vertex" else edges)


class _Planner:
    def __init__(
        self,
        program: SplitModel,
        units: Units,
        symmetric: bool,
        outputs: tuple[Var, ...],
        mapped: frozenset[str],
        *,
        threads: int,
    ) -> None:
        self._slices, self._threads = _slices(program, units), threads
        self._program, self._units, self._symmetric, self._outputs = program, units, symmetric, outputs
        computed = ("real", "weights", "ids", "places")
        given: set[Value] = {
            var for var, entry in read_inputs(program) if entry.role in computed or entry.name not in mapped
        }
        self._given = frozenset(given if INDEX in mapped else given | {INDEX})
        self._once = kept_of_once(program)
        self._held = int(units.vertices[-1]), int(units.edges[-1])
        self._blocked: dict[int, int] = {}

    def layout(self, budget: int, beside: int) -> Layout:
        while True:
            plan = self._plan(frozenset(), 0)
            need, when, number = max(
                (self._need(plan, which, number), which, number)
                for which in ("once", "epoch")
                for number in range(len(getattr(plan, which).sweeps))
            )
            if need <= budget:
                break
            self._block(plan, getattr(plan, when), number, budget, need)
        lasting = sum(map(self._size, plan.lasting))
        return self._plan(self._most_read(plan, budget - max(need, lasting + beside)), need)

    def _plan(self, resident: frozenset[Value], needs: int) -> Layout:
        rows = self._program.analysis.types
        lasting = [var for var in self._once if isinstance(rows[var], Rows)]
        options: Any = {"symmetric": self._symmetric, "blocked": self._blocked}
        once = schedule(self._program, "once", lasting=lasting, **options)
        epoch = schedule(self._program, "epoch", outputs=self._outputs, **options)
        blocked = dict(self._blocked)
        return Layout(
            self._program,
            self._units,
            once,
            epoch,
            blocked,
            resident,
            self._given,
            needs,
            self._outputs,
            self._slices,
            self._threads,
        )

    def _need(self, plan: Layout, which: str, number: int) -> int:
        """Bytes in memory while a sweep runs, or what comes before it."""
        current: Schedule = getattr(plan, which)
        return max(self._need_before(plan, current, number), self._need_during(plan, current, number))

    def _need_before(self, plan: Layout, current: Schedule, number: int) -> int:
        """With a block of what is gathered in blocks."""
        steps = [step for step in current.sweeps[number].before if step.kind == "blocked"]
        blocks = [self._block_bytes(current, step.index) + self._block_work(plan, step) for step in steps]
        if not blocks:
            return 0
        there = {var for var in self._live(plan, current, number) if current.made.get(var, -1) < number}
        return sum(map(self._size, there)) + max(blocks)

    def _need_during(self, plan: Layout, current: Schedule, number: int) -> int:
        """With whole values and the work on units."""
        live = sum(map(self._size, self._live(plan, current, number)))
        return live + work_bytes(plan, current, current.sweeps[number])

    def _block_work(self, plan: Layout, step: Step) -> int:
        """Buffers, for a unit, of what a block is made of and gathered with."""
        most = self._units.largest("vertex"), self._units.largest("edge")
        read = [value_bytes(self._program, var, *most) for var in (*step.at_random, *step.in_order)]
        return plan.buffers * (max(read) + _INDEX_BYTES * most[1])

    def _live(self, plan: Layout, current: Schedule, number: int) -> set[Var]:
        inputs = {var for var, _ in read_inputs(self._program)}
        found = set(plan.lasting)
        if current is plan.once:
            found = {var for var in found if var in inputs or plan.once.made[var] <= number}
            found |= {var for var in current.whole if var in inputs}
        made = current.made
        found |= {
            var
            for var in current.whole & made.keys()
            if made[var] <= number <= max(current.last_read.get(var, 0), made[var])
        }
        return found

    def _size(self, var: Value) -> int:
        return value_bytes(self._program, var, *self._held)

    def _block_bytes(self, current: Schedule, index: int) -> int:
        (step,) = (step for sweep in current.sweeps for step in sweep.before if step.index == index)
        columns = self._blocked[index]
        return sum(self._size(var) // _width(var) * min(columns, _width(var)) for var in step.at_random)

    def _block(self, plan: Layout, current: Schedule, number: int, budget: int, need: int) -> None:
        """Gathers something in blocks, or in narrower ones."""
        steps = [step for step in current.sweeps[number].before if step.kind == "blocked"]
        if self._need_during(plan, current, number) < need:
            widest = max(steps, key=lambda step: self._block_bytes(current, step.index))
            width, before = max(map(_width, widest.at_random)), self._blocked[widest.index]
            each = self._block_bytes(current, widest.index) // before
            fits = max(1, before - -(-(need - budget) // max(1, each)))
            if fits < before:
                self._blocked[widest.index] = -(-width // -(-width // fits))  # blocks of about one width
                return
            raise self._too_little(need, budget)
        live = self._live(plan, current, number)
        candidates = [
            (sum(map(self._size, set(step.at_random) & live)), step)
            for each in current.sweeps
            for step in each.steps
            if step.kind == "pull" and step.at_random and current.operator(step).columns_apart
        ]
        candidates = [(size, step) for size, step in candidates if size and max(map(_width, step.at_random)) > 1]
        if not candidates:
            raise self._too_little(need, budget)
        _, chosen = max(candidates, key=lambda pair: pair[0])
        self._blocked[chosen.index] = max(map(_width, chosen.at_random))

    def _too_little(self, need: int, budget: int) -> TooLittleMemoryError:
        return TooLittleMemoryError(self._program.traced.name, need, budget)

    def _most_read(self, plan: Layout, left: int) -> frozenset[Value]:
        """What is read most often for its bytes, as far as memory is left."""
        resident: set[Value] = set()
        reads = _reads(plan.epoch)
        for var in sorted(reads, key=lambda var: (-reads[var], self._size(var), str(var))):
            there = var in self._given or (var != INDEX and var in plan.whole)
            if reads[var] and not there and self._size(var) <= left:
                resident.add(var)
                left -= self._size(var)
        return frozenset(resident)


def work_bytes(plan: Layout, current: Schedule, sweep: Sweep) -> int:
    """Bytes that the largest units take in a sweep: what is read in order, what threads compute, what is kept."""
    program, units = plan.program, plan.units
    most = units.largest("vertex"), units.largest("edge")
    slice_most = min(most[0], plan.slices.rows), min(most[1], plan.slices.entries)

    def size(var: Var) -> int:
        return value_bytes(program, var, *most)

    def size_of_slice(var: Var) -> int:
        return value_bytes(program, var, *slice_most)

    read = sum(map(size, current.streams(sweep))) + current.reads_index(sweep) * _INDEX_BYTES * most[1]
    pushes = [step for step in sweep.steps if step.kind == "push"]
    pushed = (_SORTED_BYTES * most[1] if pushes else 0) + sum(_made_bytes(program, step, size) for step in pushes)
    made = sum(
        _made_bytes(program, step, size_of_slice) for step in sweep.steps if step.index >= 0 and step.kind != "push"
    )
    if current.for_labelled(sweep):  # copies of what is read
        made += sum(map(size_of_slice, current.streams(sweep))) + _INDEX_BYTES * slice_most[1]
    outlive = [var for var in current.outlive(sweep) if var not in plan.whole]
    kept = sum(size(var) for var in outlive if var in current.kept)
    return plan.buffers * read + pushed + plan.threads * made + COMPUTED * sum(map(size, outlive)) + PENDING * kept


def _made_bytes(program: SplitModel, step: Step, size: Callable[[Var], int]) -> int:
    """Bytes of a step's rows of a unit: what it writes, results of products, and two of what XLA computes on the way.

    Element by element XLA goes through many operations at a time.
    """
    equations = program.tasks[step.index].equations
    types = program.analysis.types
    made = {var for equation in equations for var in variables(equation.outvars) if isinstance(types[var], Rows)}
    lasting = {var for equation in equations if equation.primitive.name in _IN_MEMORY for var in equation.outvars}
    lasting.update(step.writes)
    return sum(map(size, made & lasting)) + 2 * max(map(size, made), default=0)


def _reads(current: Schedule) -> dict[Value, int]:
    """How often an epoch reads, or writes, each value in order."""
    found: dict[Value, int] = {INDEX: 0}
    for sweep in current.sweeps:
        for var in current.streams(sweep):
            found[var] = found.get(var, 0) + 1
        found[INDEX] += current.reads_index(sweep)
        for step in sweep.steps:
            for var in step.writes:
                if var in current.kept and var not in current.whole:
                    found[var] = found.get(var, 0) + 1
    return found


def _traffic(plan: Layout, current: Schedule) -> tuple[int, int]:
    held = plan.num_vertices, plan.num_edges
    program = plan.program

    def size(var: Value) -> int:
        stays = var in plan.resident or var in plan.given or (var != INDEX and var in plan.whole)
        return 0 if stays else value_bytes(program, var, *held)

    read = written = 0
    for sweep in current.sweeps:
        read += sum(map(size, current.streams(sweep)))
        written += sum(size(var) for step in sweep.steps for var in step.writes if var in current.kept)
        for step in sweep.before:
            if step.kind == "blocked":
                blocks = -(-max(map(_width, step.at_random)) // plan.blocked[step.index])
                read += blocks * sum(map(size, (*step.at_random, *step.in_order)))
                written += sum(map(size, step.writes))
        first = {var for step in sweep.steps for var in step.at_random if var not in current.made}
        if current is plan.once:
            read += sum(value_bytes(program, var, *held) for var in first)
    return read + _index_reads(plan, current) * size(INDEX), written


def _index_reads(plan: Layout, current: Schedule) -> int:
    count = sum(current.reads_index(sweep) for sweep in current.sweeps)
    for sweep in current.sweeps:
        for step in sweep.before:
            if step.kind == "blocked":
                count += -(-max(map(_width, step.at_random)) // plan.blocked[step.index])
    return count


def _width(var: Var) -> int:
    """Columns along the last axis."""
    shape = type_of(var).shape
    return int(size_at(shape[-1], {})) if len(shape) > 1 else 1


def _slices(program: SplitModel, units: Units) -> Slices:
    types = program.analysis.types
    made = [
        (var, found.space)
        for interface in program.interfaces
        for var in interface.writes
        if isinstance(found := types[var], Rows)
    ]
    widest = max((row_bytes(var) for var, space in made if space == "vertex"), default=1)
    return slices_for(units, widest, by_edge=any(space == "edge" for _, space in made))


def _inputs(program: SplitModel) -> frozenset[Var]:
    return frozenset(program.traced.step.jaxpr.invars)
