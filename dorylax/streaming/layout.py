"""Placement of a streamed program's values, and its consequences: bytes in memory, bytes on disk, and bytes moved.

A labelled vertex is one that takes part in the training loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Literal, final

from dorylax.jax_internals import Var, size_at, type_of, variables
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.steps import Step
from dorylax.streaming.graph_steps import PIECE_BYTES
from dorylax.streaming.schedule import Schedule, Sweep
from dorylax.streaming.transfers import BUFFERS, COMPUTED, PENDING
from dorylax.streaming.units import Slices, Units

INDEX: Literal["index"] = "index"
"""Key of the neighbours of all vertices, among values of the program."""
FROM_LABELLED: Literal["index from labelled"] = "index from labelled"
"""Key of the neighbours that are labelled (`graph_steps.encoded`)."""
TO_LABELLED: Literal["index to labelled"] = "index to labelled"
"""Key of the neighbours of labelled vertices."""
Value = Var | Literal["index", "index from labelled", "index to labelled"]
INDEX_BYTES = 4
_OFFSET_BYTES = 8
_IN_MEMORY = frozenset({"dot_general", "gather", "scatter-add", "sort", "cumsum"})
"""Operations whose results XLA writes to memory."""
_SORTED_BYTES = 28
"""Bytes per edge of a unit while its edges are sorted by source."""
_IN_A_PIECE = 4
"""Pieces that a thread holds in memory while it adds up at sources: operands, results, and totals."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Placement of a program's values.

    Attributes:
        program: The program.
        units: The cut of the rows.
        once, epoch: Its sweeps before training, and in every epoch.
        blocked: Columns per block, by the number of the task that traverses edges block by block.
        filed: Values in files that are in memory only while a sweep reads them through edges.
        resident: For values that are read in order and yet held in memory, the numbers of the units held: all or some.
        given: Inputs that need no memory in addition: computed from row numbers, or already held by their owner.
        needs: Peak bytes of the values and work that must be in memory.
        outputs: Values whose rows are handed over.
        slices: The cut of units into slices, each for one thread at a time.
        threads: Number of computing threads.
        labelled_edges: Number of edges from labelled vertices, and equally to them, if these edges are kept separately;
            None: they are not, or no sweep traverses only them.
        buffers: Units in memory at a time, for values read in order.
    """

    program: SplitModel
    units: Units
    once: Schedule
    epoch: Schedule
    blocked: Mapping[int, int]
    filed: frozenset[Var]
    resident: Mapping[Value, frozenset[int]]
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
        """Values of `whole` that are in memory between epochs, too."""
        return frozenset(var for var in self.epoch.whole if var not in self.epoch.made)

    @cached_property
    def lasting_bytes(self) -> int:
        """Bytes in memory between epochs."""
        return sum(map(self.size, self.lasting)) + self.resident_bytes

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes of values that are read in order and yet held in memory."""
        return sum(map(self._size_in_memory, self.resident))

    @property
    def bytes(self) -> int:
        """Peak bytes in memory."""
        return self.needs + self.resident_bytes

    def size(self, value: Value) -> int:
        """Bytes of all rows of a value."""
        edges = (self.labelled_edges or 0) if value in (FROM_LABELLED, TO_LABELLED) else self.num_edges
        return value_bytes(self.program, value, self.num_vertices, edges)

    def size_of_unit(self, value: Value, unit: int) -> int:
        """Bytes of a unit's rows of a value, other than separately kept edges."""
        (first, last), (begin, end) = (self.units.bounds(space, unit) for space in ("vertex", "edge"))
        return value_bytes(self.program, value, last - first, end - begin)

    def moved(self, value: Value) -> int:
        """Bytes moved through a file by one pass that reads or writes all of a value in order."""
        if value in self.given or value in self.whole:
            return 0
        return self.size(value) - self._size_in_memory(value)

    def _size_in_memory(self, value: Value) -> int:
        """Bytes of the units of a value that are held in memory."""
        units = self.resident.get(value, ())
        if len(units) == len(self.units):
            return self.size(value)
        return sum(self.size_of_unit(value, unit) for unit in units)

    def index_of(self, current: Schedule, sweep: Sweep) -> Value:
        """Key of the edges that a sweep traverses."""
        if self.labelled_edges is None:
            return INDEX
        return FROM_LABELLED if current.from_labelled(sweep) else TO_LABELLED if current.for_labelled(sweep) else INDEX

    @cached_property
    def apart(self) -> frozenset[Value]:
        """Keys of the separately kept edges."""
        sweeps = filter(self.epoch.reads_index, self.epoch.sweeps)
        return frozenset({self.index_of(self.epoch, sweep) for sweep in sweeps} - {INDEX})

    @cached_property
    def traffic(self) -> tuple[int, int]:
        """Bytes that an epoch reads and writes."""
        return self.traffic_of(self.epoch)

    @cached_property
    def traffic_of_once(self) -> tuple[int, int]:
        """Bytes read and written before training."""
        read, written = self.traffic_of(self.once)
        return read + bool(self.apart) * self.moved(INDEX), written + sum(map(self.moved, self.apart))

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes on disk."""
        kept = (self.once.kept | self.epoch.kept) - self.whole
        return sum(self.size(value) - self._size_in_memory(value) for value in kept | self.apart)

    @cached_property
    def index_reads(self) -> int:
        """Number of traversals of the edges (all, or all that count) in an epoch."""
        return self.index_reads_of(self.epoch)

    def traffic_of(self, current: Schedule) -> tuple[int, int]:
        """Bytes that the sweeps of a schedule read and write."""
        size, read, written = self.moved, 0, 0
        for sweep in current.sweeps:
            read += sum(size(var) for var in current.streams(sweep) if var not in read_at_random(sweep))
            written += sum(size(var) for step in sweep.steps for var in step.writes if var in current.kept)
            for step in sweep.blocked:
                read += self.blocks_of(step) * sum(map(size, (*step.through_edges, *step.own_rows)))
                written += sum(map(size, step.writes))
            read += sum(map(size, read_at_random(sweep) & self.filed))
            first = {var for step in sweep.steps for var in step.through_edges if var not in current.made}
            if current is self.once:
                read += sum(map(self.size, first))
            read += current.reads_index(sweep) * size(self.index_of(current, sweep))
            read += sum(map(self.blocks_of, sweep.blocked)) * size(INDEX)
        return read, written

    def index_reads_of(self, current: Schedule) -> int:
        """Number of traversals of the edges in a schedule."""
        count = sum(current.reads_index(sweep) for sweep in current.sweeps)
        return count + sum(self.blocks_of(step) for sweep in current.sweeps for step in sweep.blocked)

    def blocks_of(self, step: Step) -> int:
        """Number of blocks of columns that a step runs over."""
        return -(-width_of(step) // self.blocked[step.index])


def value_bytes(program: SplitModel, var: Value, vertices: int, edges: int) -> int:
    """Bytes of so many rows of a value."""
    if isinstance(var, str):
        return INDEX_BYTES * (edges + vertices * (var == FROM_LABELLED))
    space = program.analysis.types[var].space  # type: ignore[union-attr]
    return program.analysis.row_bytes[var] * (vertices if space == "vertex" else edges)


def work_bytes(plan: Layout, current: Schedule, sweep: Sweep) -> int:
    """Peak bytes of work on the largest units in a sweep: rows read in order, values computed by threads, rows kept."""
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
    made = sum(_made_bytes(program, step, size_of_slice) for step in sweep.steps if step.kind not in ("push", "output"))
    if current.for_labelled(sweep):  # copies of the rows read
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
    """Bytes for the edges from labelled vertices while threads select them, and for a bit per vertex."""
    slices, units = plan.slices, plan.units
    entries, rows = min(units.largest("edge"), slices.entries), min(units.largest("vertex"), slices.rows)
    return plan.threads * (INDEX_BYTES * entries + _OFFSET_BYTES * rows) + plan.num_vertices // 8


def push_bytes(plan: Layout, step: Step) -> int:
    """Bytes of edges sorted by source, and of the rows that threads add up for some of these."""
    edges = plan.units.largest("edge")
    row = sum(map(plan.program.analysis.row_bytes.__getitem__, whole_values(step)))
    return _SORTED_BYTES * edges + _IN_A_PIECE * min(plan.threads * max(PIECE_BYTES, row), edges * row)


def _made_bytes(program: SplitModel, step: Step, size: Callable[[Var], int]) -> int:
    """Bytes of a step's rows of a unit: its results, results of products, and two intermediate values of XLA.

    XLA fuses elementwise operations, so that their other intermediate values never reach memory.
    """
    types = program.analysis.types
    made = {var for equation in step.equations for var in variables(equation.outvars) if isinstance(types[var], Rows)}
    lasting = {var for equation in step.equations if equation.primitive.name in _IN_MEMORY for var in equation.outvars}
    lasting.update(step.writes)
    return sum(map(size, made & lasting)) + 2 * max(map(size, made), default=0)


def read_at_random(sweep: Sweep) -> frozenset[Var]:
    """Values that a sweep holds in memory for all vertices and only reads."""
    return frozenset(var for step in sweep.steps for var in step.through_edges)


def whole_values(step: Step) -> frozenset[Var]:
    """Values that a graph operator reads or adds to for all vertices."""
    return frozenset(step.through_edges).union(step.writes if step.kind == "push" else ())


def width_of(step: Step) -> int:
    """Columns of a step's result, along the last axis."""
    shape = type_of(step.writes[0]).shape
    return int(size_at(shape[-1], {})) if len(shape) > 1 else 1
