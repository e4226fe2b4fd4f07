"""Where everything of a program lies while it streams, and what follows from that: bytes in memory, on disk, and moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Literal, final

from dorylax.jax_internals import Var, size_at, type_of, variables
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.streaming.graph_steps import PIECE_BYTES
from dorylax.streaming.prefetch import BUFFERS, COMPUTED
from dorylax.streaming.schedule import Schedule, Step, Sweep, blocked_steps
from dorylax.streaming.slices import Slices
from dorylax.streaming.units import Units
from dorylax.streaming.writing import PENDING

INDEX: Literal["index"] = "index"
"""What stands for the neighbours of all vertices beside values of the program."""
FROM_LABELLED: Literal["index from labelled"] = "index from labelled"
"""And for those of them that have a label (`labelled_edges`)."""
TO_LABELLED: Literal["index to labelled"] = "index to labelled"
"""And for the neighbours of vertices that have a label."""
Value = Var | Literal["index", "index from labelled", "index to labelled"]
INDEX_BYTES = 4
_OFFSET_BYTES = 8
_IN_MEMORY = frozenset({"dot_general", "gather", "scatter-add", "sort", "cumsum"})
"""Operations whose results XLA writes to memory."""
_SORTED_BYTES = 28
"""Of each edge of a unit while its edges are put in order of sources."""
_IN_A_PIECE = 4
"""Pieces that a thread has in memory while it adds up at sources: operands, results, and what is added to."""


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
        partly: and what of other such values is: numbers of units.
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
    partly: Mapping[Value, frozenset[int]] = dataclasses.field(default_factory=dict)

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
        return sum(map(self.size, self.lasting)) + self.resident_bytes

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes of what is read in order, and in memory all the same."""
        return sum(map(self.size, self.resident)) + sum(map(self._size_in_memory, self.partly))

    @property
    def bytes(self) -> int:
        """Bytes in memory at most."""
        return self.needs + self.resident_bytes

    def size(self, value: Value) -> int:
        """Bytes of all rows of a value."""
        edges = (self.labelled_edges or 0) if value in (FROM_LABELLED, TO_LABELLED) else self.num_edges
        return value_bytes(self.program, value, self.num_vertices, edges)

    def size_of_unit(self, value: Value, unit: int) -> int:
        """Bytes of a unit's rows of a value, other than edges that are kept apart."""
        (first, last), (begin, end) = (self.units.bounds(space, unit) for space in ("vertex", "edge"))
        return value_bytes(self.program, value, last - first, end - begin)

    def moved(self, value: Value) -> int:
        """Bytes that go through a file whenever all of a value is read or written in order."""
        if value in self.resident or value in self.given or value in self.whole:
            return 0
        return self.size(value) - self._size_in_memory(value)

    def _size_in_memory(self, value: Value) -> int:
        """Bytes of a value of which only a part is in memory."""
        return sum(self.size_of_unit(value, unit) for unit in self.partly.get(value, ()))

    def index_of(self, current: Schedule, sweep: Sweep) -> Value:
        """Which edges a sweep goes through."""
        if self.labelled_edges is None:
            return INDEX
        return FROM_LABELLED if current.from_labelled(sweep) else TO_LABELLED if current.for_labelled(sweep) else INDEX

    @cached_property
    def apart(self) -> frozenset[Value]:
        """Which edges are kept apart."""
        sweeps = filter(self.epoch.reads_index, self.epoch.sweeps)
        return frozenset({self.index_of(self.epoch, sweep) for sweep in sweeps} - {INDEX})

    @cached_property
    def traffic(self) -> tuple[int, int]:
        """Bytes that an epoch reads, and that it writes."""
        return self.traffic_of(self.epoch)

    @cached_property
    def traffic_of_once(self) -> tuple[int, int]:
        """Bytes that are read and written before training."""
        read, written = self.traffic_of(self.once)
        return read + bool(self.apart) * self.moved(INDEX), written + sum(map(self.moved, self.apart))

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes on disk."""
        kept = (self.once.kept | self.epoch.kept) - self.whole
        return sum(self.size(value) - self._size_in_memory(value) for value in (kept | self.apart) - self.resident)

    @cached_property
    def index_reads(self) -> int:
        """How often an epoch goes through edges: through all, or all that count."""
        return self.index_reads_of(self.epoch)

    def traffic_of(self, current: Schedule) -> tuple[int, int]:
        """Bytes that the sweeps of a schedule read, and that they write."""
        size, read, written = self.moved, 0, 0
        for sweep in current.sweeps:
            read += sum(size(var) for var in current.streams(sweep) if var not in read_at_random(sweep))
            written += sum(size(var) for step in sweep.steps for var in step.writes if var in current.kept)
            for step in blocked_steps(sweep):
                read += self.blocks_of(step) * sum(map(size, (*step.at_random, *step.in_order)))
                written += sum(map(size, step.writes))
            read += sum(map(size, read_at_random(sweep) & self.filed))
            first = {var for step in sweep.steps for var in step.at_random if var not in current.made}
            if current is self.once:
                read += sum(map(self.size, first))
            read += current.reads_index(sweep) * size(self.index_of(current, sweep))
            read += sum(map(self.blocks_of, blocked_steps(sweep))) * size(INDEX)
        return read, written

    def index_reads_of(self, current: Schedule) -> int:
        """How often the sweeps of a schedule go through edges."""
        count = sum(current.reads_index(sweep) for sweep in current.sweeps)
        return count + sum(self.blocks_of(step) for sweep in current.sweeps for step in blocked_steps(sweep))

    def blocks_of(self, step: Step) -> int:
        """Over how many blocks of columns a step goes."""
        return -(-width_of(step) // self.blocked[step.index])


def value_bytes(program: SplitModel, var: Value, vertices: int, edges: int) -> int:
    """Bytes of so many rows of a value."""
    if isinstance(var, str):
        return INDEX_BYTES * (edges + vertices * (var == FROM_LABELLED))
    space = program.analysis.types[var].space  # type: ignore[union-attr]
    return program.analysis.row_bytes[var] * (vertices if space == "vertex" else edges)


def work_bytes(plan: Layout, current: Schedule, sweep: Sweep) -> int:
    """Bytes that the largest units take in a sweep: what is read in order, what threads compute, what is kept."""
    program, units = plan.program, plan.units
    most = units.largest("vertex"), units.largest("edge")
    slice_most = min(most[0], plan.slices.rows), min(most[1], plan.slices.entries)

    def size(var: Var) -> int:
        return value_bytes(program, var, *most)

    def size_of_slice(var: Var) -> int:
        return value_bytes(program, var, *slice_most)

    there = (plan.whole & current.made.keys()) | read_at_random(sweep)
    read = sum(size(var) for var in current.streams(sweep) if var not in there)
    read += current.reads_index(sweep) * value_bytes(program, plan.index_of(current, sweep), *most)
    pushed = max((push_bytes(plan, step) for step in sweep.steps if step.kind == "push"), default=0)
    made = sum(
        _made_bytes(program, step, size_of_slice) for step in sweep.steps if step.index >= 0 and step.kind != "push"
    )
    if current.for_labelled(sweep):  # copies of what is read
        made += sum(map(size_of_slice, current.streams(sweep)))
        made += (current.reads_index(sweep) and plan.labelled_edges is None) * INDEX_BYTES * slice_most[1]
    filtered = 0
    if current.from_labelled(sweep) and plan.labelled_edges is None:
        filtered = filtering_bytes(plan)
    outlive = [var for var in current.outlive(sweep) if var not in plan.whole]
    kept = sum(size(var) for var in outlive if var in current.kept)
    work = plan.buffers * read + pushed + plan.threads * made
    return work + filtered + COMPUTED * sum(map(size, outlive)) + PENDING * kept


def filtering_bytes(plan: Layout) -> int:
    """Of the edges from vertices with a label, while threads find these among all; and a bit for each vertex."""
    slices, units = plan.slices, plan.units
    entries, rows = min(units.largest("edge"), slices.entries), min(units.largest("vertex"), slices.rows)
    return plan.threads * (INDEX_BYTES * entries + _OFFSET_BYTES * rows) + plan.num_vertices // 8


def push_bytes(plan: Layout, step: Step) -> int:
    """Of edges in order of sources, and of the rows that threads add up for some of these."""
    edges = plan.units.largest("edge")
    row = sum(map(plan.program.analysis.row_bytes.__getitem__, step.through_edges))
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


def read_at_random(sweep: Sweep) -> frozenset[Var]:
    """What a sweep has in memory for all vertices, and only reads."""
    return frozenset(var for step in sweep.steps for var in step.at_random)


def width_of(step: Step) -> int:
    """Columns of what a step writes, along the last axis."""
    shape = type_of(step.writes[0]).shape
    return int(size_at(shape[-1], {})) if len(shape) > 1 else 1
