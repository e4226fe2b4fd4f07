"""What of a run stays in memory, what is read from disk in order, and what is gathered some columns at a time: pure.

What is read or added up through edges must be in memory for all rows while a sweep does so. Where that is too much, what a
sweep reads in order alone comes from a file, and the widest is gathered, or added up, in blocks of columns, each of which
reads the index once more. Of such plans the one is taken that reads least. What is left of the memory goes to what is read
most often for its bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import numpy as np

from dorylax.errors import DorylaxError
from dorylax.jax_internals import Var, is_literal, size_at, type_of, variables
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.streaming.data import read_inputs
from dorylax.streaming.graph_steps import PIECE_BYTES
from dorylax.streaming.prefetch import BUFFERS, COMPUTED
from dorylax.streaming.schedule import Schedule, Step, Sweep, kept_of_once, schedule
from dorylax.streaming.slices import Slices, slices_for
from dorylax.streaming.units import Units, cut, most_entries, most_rows
from dorylax.streaming.writing import PENDING

INDEX: Literal["index"] = "index"
"""What stands for the neighbours of all vertices beside values of the program."""
FROM_LABELLED: Literal["index from labelled"] = "index from labelled"
"""And for those of them that have a label (`labelled_edges`)."""
TO_LABELLED: Literal["index to labelled"] = "index to labelled"
"""And for the neighbours of vertices that have a label."""
Value = Var | Literal["index", "index from labelled", "index to labelled"]
_INDEX_BYTES = 4
_OFFSET_BYTES = 8
_IN_MEMORY = frozenset({"dot_general", "gather", "scatter-add", "sort", "cumsum"})
"""Operations whose results XLA writes to memory."""
_SORTED_BYTES = 28
"""Of each edge of a unit while its edges are put in order of sources."""
_IN_A_PIECE = 4
"""Pieces that a thread has in memory while it adds up at sources: operands, results, and what is added to."""
_EDGE_COST = 12
"""Going through an edge once more takes about as long as reading so many bytes."""
_MOST_TRIED = 256
"""Plans that are compared, about: a model of many layers has many, and looking at one takes milliseconds."""
_ONCE_COST = 0.1
"""How much what is done once counts beside what is done in every epoch."""


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
        blocked: columns of a block, by the number of the task that goes through edges with them.
        filed: values that are in files, and in memory only while a sweep reads them through edges.
        resident: what is read in order, and in memory all the same.
        given: inputs that take no more memory: those that follow from their numbers, or that whoever has them holds.
        needs: bytes in memory at most, for what must be there.
        outputs: rows that are handed over.
        slices: of a unit, one for a thread at a time.
        threads: that compute.
        labelled_edges: how many edges come from vertices with a label, and how many lead to such, where these are kept
            apart; None: they are not, or nothing goes through them alone.
        buffers: units in memory at a time, of what is read in order.
    """

    program: SplitModel
    units: Units
    once: Schedule
    epoch: Schedule
    blocked: Mapping[int, int]
    filed: frozenset[Var]
    resident: frozenset[Value]
    given: frozenset[Value]
    needs: int
    outputs: tuple[Var, ...]
    slices: Slices
    threads: int
    labelled_edges: int | None = None
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
        return (self.once.whole | self.epoch.whole) - self.filed

    @cached_property
    def lasting(self) -> frozenset[Var]:
        """Those of `whole` that are in memory between epochs, too."""
        return frozenset(var for var in self.epoch.whole if var not in self.epoch.made)

    @cached_property
    def lasting_bytes(self) -> int:
        """Bytes in memory between epochs."""
        return sum(map(self.size, (*self.resident, *self.lasting)))

    @property
    def bytes(self) -> int:
        """Bytes in memory at most."""
        return self.needs + sum(map(self.size, self.resident))

    def size(self, value: Value) -> int:
        """Bytes of all rows of a value."""
        edges = (self.labelled_edges or 0) if value in (FROM_LABELLED, TO_LABELLED) else self.num_edges
        return value_bytes(self.program, value, self.num_vertices, edges)

    def index_of(self, current: Schedule, sweep: Sweep) -> Value:
        """Which edges a sweep goes through."""
        if self.labelled_edges is None:
            return INDEX
        return FROM_LABELLED if current.from_labelled(sweep) else TO_LABELLED if current.for_labelled(sweep) else INDEX

    @cached_property
    def apart(self) -> frozenset[Value]:
        """Which edges are kept apart."""
        found = {self.index_of(self.epoch, sweep) for sweep in self.epoch.sweeps}
        return frozenset(found - {INDEX})

    @cached_property
    def traffic(self) -> tuple[int, int]:
        """Bytes that an epoch reads, and that it writes."""
        return _traffic(self, self.epoch)

    @cached_property
    def traffic_of_once(self) -> tuple[int, int]:
        """Bytes that are read and written before training."""
        read, written = _traffic(self, self.once)
        return read + bool(self.apart) * _moved(self, INDEX), written + sum(_moved(self, one) for one in self.apart)

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes on disk."""
        kept = (self.once.kept | self.epoch.kept) - self.whole
        return sum(map(self.size, (kept | self.apart) - self.resident))

    @cached_property
    def index_reads(self) -> int:
        """How often an epoch goes through edges: through all, or all that count."""
        return _index_reads(self, self.epoch)


def unit_rows(*programs: SplitModel) -> tuple[int, int]:
    """Rows and edges that a unit may have at most, for programs that share their units."""
    widest, widest_edge = 1, 0
    for program in programs:
        types = program.analysis.types
        for var, found in types.items():
            if isinstance(found, Rows) and found.space == "vertex":
                widest = max(widest, row_bytes(var))
            elif isinstance(found, Rows) and var not in _inputs(program):
                widest_edge = max(widest_edge, row_bytes(var))
    return most_rows(widest), most_entries(widest_edge)


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
    labelled_edges: int | None = None,
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
        labelled_edges: how many edges come from vertices with a label, and lead to such, so that these may be kept apart;
            None: they may not.

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
    planner = _Planner(program, units, symmetric, with_rows, mapped, threads=threads, labelled_edges=labelled_edges)
    return planner.layout(budget, beside)


def row_bytes(var: Var) -> int:
    """Bytes of one row of a value."""
    itemsize: int = type_of(var).dtype.itemsize
    return math.prod(int(size_at(dim, {"n": 1, "e": 1})) for dim in type_of(var).shape) * itemsize


def value_bytes(program: SplitModel, var: Value, vertices: int, edges: int) -> int:
    """Bytes of so many rows of a value."""
    if isinstance(var, str):
        return _INDEX_BYTES * (edges + vertices * (var == FROM_LABELLED))
    space = program.analysis.types[var].space  # type: ignore[union-attr]
    return row_bytes(var) * (vertices if space == "vertex" else edges)


class _Choice(NamedTuple):
    """What saves memory.

    Attributes:
        blocked: numbers of tasks that go through edges with some columns at a time.
        filed: as `Layout.filed`.
    """

    blocked: frozenset[int]
    filed: frozenset[Var]


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
        labelled_edges: int | None,
    ) -> None:
        self._labelled_edges = labelled_edges
        self._slices, self._threads = _slices(program, units), threads
        self._program, self._units, self._symmetric, self._outputs = program, units, symmetric, outputs
        computed = ("real", "weights", "ids", "places")
        given: set[Value] = {
            var for var, entry in read_inputs(program) if entry.role in computed or entry.name not in mapped
        }
        self._given = frozenset(given if INDEX in mapped else given | {INDEX})
        self._once = kept_of_once(program)
        self._held = int(units.vertices[-1]), int(units.edges[-1])

    def layout(self, budget: int, beside: int) -> Layout:
        choice = self._first(budget)
        best = self._fitted(choice, budget)
        assert best is not None
        tried = 0
        while choice.blocked and tried < _MOST_TRIED:  # without blocks nothing reads less
            others = list(self._others(choice))
            tried += len(others)
            found = [(other, plan) for other in others if (plan := self._fitted(other, budget))]
            choice, plan = min(found, key=lambda pair: _cost(pair[1]), default=(choice, best))
            if _cost(plan) >= _cost(best):
                break
            best = plan
        best = self._with_spare(self._with_labelled(best, budget), budget)
        lasting = sum(map(self._size, best.lasting))
        resident = self._most_read(best, budget - max(best.needs, lasting + beside))
        return dataclasses.replace(best, resident=resident)

    def _with_labelled(self, plan: Layout, budget: int) -> Layout:
        """With the edges of vertices with a label kept apart, where something goes through them alone."""
        kept = dataclasses.replace(plan, labelled_edges=self._labelled_edges)
        if not kept.apart:
            return plan
        rows, edges = self._most()
        pieces = self._threads + COMPUTED + PENDING
        making = plan.lasting_bytes + plan.buffers * _INDEX_BYTES * edges + self._held[0] // 8
        making += pieces * sum(value_bytes(self._program, one, rows, edges) for one in kept.apart)
        needs = max([making, *(need for need, _, _ in self._needs(kept))])
        return dataclasses.replace(kept, needs=needs) if needs <= budget else plan

    def _with_spare(self, plan: Layout, budget: int) -> Layout:
        """With room in every sweep for all whole values of another: memory that is used again need not be cleared."""
        sweeps = range(len(plan.epoch.sweeps))
        whole = [sum(map(self._size, self._live(plan, plan.epoch, number))) for number in sweeps]
        work = [self._need_during(plan, plan.epoch, number) - whole[number] for number in sweeps]
        needs = max(plan.needs, max(whole) + max(work))
        return dataclasses.replace(plan, needs=needs) if needs <= budget else plan

    def _first(self, budget: int) -> _Choice:
        """What to file and what to block until all sweeps fit, if that is in single columns."""
        choice = _Choice(frozenset(), frozenset())
        while True:
            plan = self._plan(choice, dict.fromkeys(choice.blocked, 1))
            need, which, number = max(self._needs(plan))
            if need <= budget:
                return choice
            smaller = self._smaller(choice, plan, getattr(plan, which), number, need)
            if smaller is None:
                raise TooLittleMemoryError(self._program.traced.name, need, budget)
            choice = smaller

    def _fitted(self, choice: _Choice, budget: int) -> Layout | None:
        """The plan of a choice with blocks as wide as fits, if it does."""
        columns = dict.fromkeys(choice.blocked, 1)
        plan = self._plan(choice, columns)
        if max(self._needs(plan))[0] > budget:
            return None
        for current in (plan.once, plan.epoch):
            for number, sweep in enumerate(current.sweeps):
                for step in _blocked(sweep):
                    width = _width(step)
                    fixed = self._held_before(plan, current, number) + self._block_work(plan, step)
                    fits = min(width, (budget - fixed) // max(1, self._column_bytes(step)))
                    columns[step.index] = -(-width // -(-width // fits))  # blocks of about one width
        plan = self._plan(choice, columns)
        return dataclasses.replace(plan, needs=max(self._needs(plan))[0])

    def _others(self, choice: _Choice) -> Iterator[_Choice]:
        """Choices that differ in one thing."""
        plan = self._plan(choice, dict.fromkeys(choice.blocked, 1))
        may_block = {step.index for current in (plan.once, plan.epoch) for step in self._may_block(current)}
        for index in sorted(may_block | choice.blocked):
            yield choice._replace(blocked=choice.blocked ^ {index})
        for var in dict.fromkeys([*_may_file(plan.once), *_may_file(plan.epoch), *choice.filed]):
            yield choice._replace(filed=choice.filed ^ {var})

    def _plan(self, choice: _Choice, columns: Mapping[int, int]) -> Layout:
        rows = self._program.analysis.types
        lasting = [var for var in self._once if isinstance(rows[var], Rows)]
        options: Any = {"symmetric": self._symmetric, "blocked": choice.blocked}
        once = schedule(self._program, "once", lasting=lasting, **options)
        epoch = schedule(self._program, "epoch", outputs=self._outputs, **options)
        return Layout(
            self._program,
            self._units,
            once,
            epoch,
            columns,
            choice.filed,
            frozenset(),
            self._given,
            0,
            self._outputs,
            self._slices,
            self._threads,
        )

    def _needs(self, plan: Layout) -> Iterator[tuple[int, str, int]]:
        """Bytes in memory while each sweep runs, or what comes before it."""
        for which in ("once", "epoch"):
            current: Schedule = getattr(plan, which)
            for number in range(len(current.sweeps)):
                before = self._need_before(plan, current, number)
                yield max(before, self._need_during(plan, current, number)), which, number

    def _need_before(self, plan: Layout, current: Schedule, number: int) -> int:
        """With a block of what is gathered in blocks."""
        blocks = [
            plan.blocked[step.index] * self._column_bytes(step) + self._block_work(plan, step)
            for step in _blocked(current.sweeps[number])
        ]
        return self._held_before(plan, current, number) + max(blocks) if blocks else 0

    def _held_before(self, plan: Layout, current: Schedule, number: int) -> int:
        live = self._live(plan, current, number)
        return sum(self._size(var) for var in live if current.made.get(var, -1) < number and var not in plan.filed)

    def _need_during(self, plan: Layout, current: Schedule, number: int) -> int:
        """With whole values and the work on units."""
        sweep = current.sweeps[number]
        live = sum(map(self._size, self._live(plan, current, number)))
        gathered = [value_bytes(self._program, var, *self._most()) for var in _read_at_random(sweep) & plan.filed]
        return live + max(work_bytes(plan, current, sweep), plan.buffers * max(gathered, default=0))

    def _block_work(self, plan: Layout, step: Step) -> int:
        """Buffers, for a unit, of what a block is made of and gathered with; and edges in order of sources."""
        at_random, in_order = (
            [value_bytes(self._program, var, *self._most()) for var in values]
            for values in (step.at_random, step.in_order)
        )
        read = max(max(at_random, default=0), sum(in_order) + _INDEX_BYTES * self._units.largest("edge"))
        return plan.buffers * read + (_push_bytes(plan, step) if step.adds else 0)

    def _column_bytes(self, step: Step) -> int:
        """Of a column of what is in memory while a step runs in blocks: for all vertices, and what units make and write."""
        whole = sum(self._size(var) for var in step.through_edges)
        (result,) = step.writes
        made = (COMPUTED + PENDING) * value_bytes(self._program, result, *self._most())
        return -(-(whole + made) // _width(step))

    def _most(self) -> tuple[int, int]:
        return self._units.largest("vertex"), self._units.largest("edge")

    def _live(self, plan: Layout, current: Schedule, number: int) -> set[Var]:
        inputs = {var for var, _ in read_inputs(self._program)}
        found = set(plan.lasting)
        if current is plan.once:
            found = {var for var in found if var in inputs or plan.once.made[var] <= number}
            found |= {var for var in current.whole if var in inputs}
        made = current.made
        found |= {
            var
            for var in current.whole & made.keys() - plan.filed
            if made[var] <= number <= max(current.last_read.get(var, 0), made[var])
        }
        return found | (_read_at_random(current.sweeps[number]) & plan.filed)

    def _size(self, var: Value) -> int:
        return value_bytes(self._program, var, *self._held)

    def _smaller(self, choice: _Choice, plan: Layout, current: Schedule, number: int, need: int) -> _Choice | None:
        """Files what a sweep that needs so much reads in order, or blocks the widest that it goes through edges with."""
        live = self._live(plan, current, number)
        before = self._need_during(plan, current, number) < need
        busy = frozenset() if before else _read_at_random(current.sweeps[number])
        idle = [var for var in _may_file(current) if var in live - busy - choice.filed]
        if idle:
            return choice._replace(filed=choice.filed | {max(idle, key=self._size)})
        steps = [] if before else self._may_block(current)
        chosen = max(steps, key=lambda step: self._freed(step, live), default=None)
        if chosen is None or not self._freed(chosen, live):
            return None
        return choice._replace(blocked=choice.blocked | {chosen.index})

    def _freed(self, step: Step, live: set[Var]) -> int:
        return sum(map(self._size, step.through_edges & live))

    def _may_block(self, current: Schedule) -> list[Step]:
        return [
            step
            for sweep in current.sweeps
            for step in sweep.steps
            if step.kind in ("pull", "push") and current.operator(step).columns_apart and _width(step) > 1
        ]

    def _most_read(self, plan: Layout, left: int) -> frozenset[Value]:
        """What is read most often for its bytes, as far as memory is left."""
        resident: set[Value] = set()
        reads = _reads(plan)
        for var in sorted(reads, key=lambda var: (-reads[var], plan.size(var), str(var))):
            there = var in self._given or var in plan.whole
            if reads[var] and not there and plan.size(var) <= left:
                resident.add(var)
                left -= plan.size(var)
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

    there = (plan.whole & current.made.keys()) | _read_at_random(sweep)
    read = sum(size(var) for var in current.streams(sweep) if var not in there)
    read += current.reads_index(sweep) * value_bytes(program, plan.index_of(current, sweep), *most)
    pushed = max((_push_bytes(plan, step) for step in sweep.steps if step.kind == "push"), default=0)
    made = sum(
        _made_bytes(program, step, size_of_slice) for step in sweep.steps if step.index >= 0 and step.kind != "push"
    )
    if current.for_labelled(sweep):  # copies of what is read
        made += sum(map(size_of_slice, current.streams(sweep)))
        made += (plan.labelled_edges is None) * _INDEX_BYTES * slice_most[1]
    bits = 0
    if current.from_labelled(sweep) and plan.labelled_edges is None:  # copies of edges
        made += _INDEX_BYTES * slice_most[1] + _OFFSET_BYTES * slice_most[0]
        bits = plan.num_vertices // 8
    outlive = [var for var in current.outlive(sweep) if var not in plan.whole]
    kept = sum(size(var) for var in outlive if var in current.kept)
    work = plan.buffers * read + pushed + plan.threads * made
    return work + bits + COMPUTED * sum(map(size, outlive)) + PENDING * kept


def _push_bytes(plan: Layout, step: Step) -> int:
    """Of edges in order of sources, and of the rows that threads add up for some of these."""
    edges = plan.units.largest("edge")
    row = sum(map(row_bytes, step.through_edges))
    return _SORTED_BYTES * edges + _IN_A_PIECE * min(plan.threads * max(PIECE_BYTES, row), edges * row)


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


def _reads(plan: Layout) -> Counter[Value]:
    """How often an epoch reads, or writes, each value in order."""
    current, found = plan.epoch, Counter[Value]()
    for sweep in current.sweeps:
        found.update(current.streams(sweep))
        found[plan.index_of(current, sweep)] += current.reads_index(sweep)
        for step in sweep.steps:
            for var in step.writes:
                if var in current.kept and var not in current.whole:
                    found[var] += 1
    return found


def _traffic(plan: Layout, current: Schedule) -> tuple[int, int]:
    def size(var: Value) -> int:
        return _moved(plan, var)

    read = written = 0
    for sweep in current.sweeps:
        read += sum(size(var) for var in current.streams(sweep) if var not in _read_at_random(sweep))
        written += sum(size(var) for step in sweep.steps for var in step.writes if var in current.kept)
        for step in _blocked(sweep):
            read += _blocks(plan, step) * sum(map(size, (*step.at_random, *step.in_order)))
            written += sum(map(size, step.writes))
        read += sum(map(size, _read_at_random(sweep) & plan.filed))
        first = {var for step in sweep.steps for var in step.at_random if var not in current.made}
        if current is plan.once:
            read += sum(map(plan.size, first))
        read += current.reads_index(sweep) * size(plan.index_of(current, sweep))
        read += sum(_blocks(plan, step) for step in _blocked(sweep)) * size(INDEX)
    return read, written


def _moved(plan: Layout, value: Value) -> int:
    """Bytes that go through a file whenever a value is read or written."""
    stays = value in plan.resident or value in plan.given or value in plan.whole
    return 0 if stays else plan.size(value)


def _index_reads(plan: Layout, current: Schedule) -> int:
    count = sum(current.reads_index(sweep) for sweep in current.sweeps)
    return count + sum(_blocks(plan, step) for sweep in current.sweeps for step in _blocked(sweep))


def _cost(plan: Layout) -> float:
    """Of an epoch and what comes before, in bytes that are read."""
    edges = _EDGE_COST * plan.num_edges
    epoch, once = (sum(_traffic(plan, each)) + edges * _index_reads(plan, each) for each in (plan.epoch, plan.once))
    return epoch + _ONCE_COST * once


def _blocked(sweep: Sweep) -> list[Step]:
    return [step for step in sweep.before if step.kind == "blocked"]


def _blocks(plan: Layout, step: Step) -> int:
    return -(-_width(step) // plan.blocked[step.index])


def _read_at_random(sweep: Sweep) -> frozenset[Var]:
    """What a sweep has in memory for all vertices, and only reads."""
    return frozenset(var for step in sweep.steps for var in step.at_random)


def _may_file(current: Schedule) -> list[Var]:
    """What can come from a file to a sweep that reads it in order: whole values that are made here, but not added up."""
    return [var for var in current.made if var in current.whole - current.pushed]


def _width(step: Step) -> int:
    """Columns of what a step writes, along the last axis."""
    shape = type_of(step.writes[0]).shape
    return int(size_at(shape[-1], {})) if len(shape) > 1 else 1


def _slices(program: SplitModel, units: Units) -> Slices:
    types = program.analysis.types
    widest = {"vertex": 1, "edge": 0}
    for interface in program.interfaces:
        for var in interface.writes:
            if isinstance(found := types[var], Rows):
                widest[found.space] = max(widest[found.space], row_bytes(var))
    return slices_for(units, widest["vertex"], widest["edge"])


def _inputs(program: SplitModel) -> frozenset[Var]:
    return frozenset(program.traced.step.jaxpr.invars)
