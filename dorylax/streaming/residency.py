"""Decides which values of a run stay in memory, which are read from disk in order, and which are gathered in column blocks.

Values that a sweep reads or adds up through edges must be in memory for all rows. If they do not fit, values that a sweep
reads only in order come from files. The widest values are gathered or added up in blocks of columns, each of which
reads the index once more. Of such plans, the one that reads least is chosen. Remaining memory goes to the values read most
often per byte. The decision is pure.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dorylax.jax_internals import Var, is_literal
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.steps import Step
from dorylax.streaming.layout import (
    INDEX,
    INDEX_BYTES,
    Layout,
    Value,
    filtering_bytes,
    push_bytes,
    read_at_random,
    value_bytes,
    whole_values,
    width_of,
    work_bytes,
)
from dorylax.streaming.schedule import Schedule, schedule
from dorylax.streaming.transfers import COMPUTED, PENDING
from dorylax.streaming.units import Slices, Units, cut, most_entries, most_rows, slices_for

_EDGE_COST = 12
"""Bytes whose reading takes about as long as traversing one edge once more."""
_MOST_TRIED = 256
"""Approximate number of plans to compare: a deep model has many, and examining one takes milliseconds."""
_ONCE_COST = 0.1
"""Weight of the work before training relative to the work of an epoch."""


def unit_rows(*programs: SplitModel) -> tuple[int, int]:
    """Return the maximum numbers of rows and edges of a unit, for programs that share their units."""
    widest, widest_edge = 1, 0
    for program in programs:
        types, sizes = program.analysis.types, program.analysis.row_bytes
        for var, found in types.items():
            if isinstance(found, Rows) and found.space == "vertex":
                widest = max(widest, sizes[var])
            elif isinstance(found, Rows) and var not in _inputs(program):
                widest_edge = max(widest_edge, sizes[var])
    return most_rows(widest), most_entries(widest_edge)


def units_for(offsets: np.ndarray, *programs: SplitModel) -> Units:
    """Return the units of programs that run on one graph.

    Units have the same number of rows, with the wanted number of edges on average, so that few need padding. A unit with
    more than twice as many edges is cut shorter.
    """
    rows, entries = unit_rows(*programs)
    return cut(offsets, _even_rows(len(offsets) - 1, int(offsets[-1]), rows, entries), 2 * entries)


def _even_rows(num_vertices: int, num_edges: int, rows: int, entries: int) -> int:
    return min(rows, max(1, entries * num_vertices // max(1, num_edges)))


def even_units(num_vertices: int, num_edges: int, *programs: SplitModel) -> Units:
    """Return units of a graph known only by its size, as if all rows had the same length."""
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
    """Decide which values stay in memory.

    Args:
        program: The program.
        units: The cut of the rows.
        budget: Bytes for rows and the work on a unit.
        symmetric: Whether every edge of the graph comes with its reverse.
        mapped: Names of the inputs stored in files, `INDEX` included; all other inputs are in memory anyway.
        beside: Bytes that something else occupies between two epochs.
        threads: Number of computing threads.
        labelled_edges: Number of edges from labelled vertices, and equally to them, if these may be kept separately; None:
            they may not.

    Raises:
        SplitError: The program returns a value other than one row per vertex.
        SplitError: The budget is too small.
    """
    traced = program.traced
    found = [atom for atom in traced.step.jaxpr.outvars if not is_literal(atom)]
    types = program.analysis.types
    with_rows = tuple(dict.fromkeys(var for var in found if isinstance(types[var], Rows)))
    for output, atom in zip(traced.outputs, traced.step.jaxpr.outvars, strict=True):
        kind = None if is_literal(atom) else types[atom]
        if isinstance(kind, Rows) and (output.role != "output" or kind.space != "vertex"):
            raise SplitError(
                f"{traced.name} gives {output.role} {output.name} for every {kind.space}, which cannot be streamed: "
                "train it with more memory (single.memory_limit), or on hosts (pipeline.hosts)"
            )
    planner = _Planner(program, units, symmetric, with_rows, mapped, threads=threads, labelled_edges=labelled_edges)
    return planner.layout(budget, beside)


class _Choice(NamedTuple):
    """Decisions that save memory.

    Attributes:
        blocked: Numbers of tasks that traverse edges one block of columns at a time.
        filed: As in `Layout.filed`.
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
            var for var, entry in program.read_inputs.items() if entry.role in computed or entry.name not in mapped
        }
        self._given = frozenset(given if INDEX in mapped else given | {INDEX})
        self._schedules: dict[frozenset[int], tuple[Schedule, Schedule]] = {}
        self._during: dict[tuple[object, ...], int] = {}
        self._held = int(units.vertices[-1]), int(units.edges[-1])

    def layout(self, budget: int, beside: int) -> Layout:
        choice = self._first(budget)
        best = self._fitted(choice, budget)
        assert best is not None
        tried = 0
        while choice.blocked and tried < _MOST_TRIED:  # a plan without blocks already reads least
            others = list(self._others(choice))
            tried += len(others)
            found = [(other, plan) for other in others if (plan := self._fitted(other, budget))]
            choice, plan = min(found, key=lambda pair: _cost(pair[1]), default=(choice, best))
            if _cost(plan) >= _cost(best):
                break
            best = plan
        best = self._with_spare(self._with_labelled(best, budget), budget)
        lasting = sum(map(self._size, best.lasting))
        return self._with_most_read(best, budget - max(best.needs, lasting + beside))

    def _with_labelled(self, plan: Layout, budget: int) -> Layout:
        """Keep edges of labelled vertices separately, if a sweep traverses only those and they fit."""
        kept = dataclasses.replace(plan, labelled_edges=self._labelled_edges)
        if not kept.apart:
            return plan
        rows, edges = self._most()
        pieces = self._threads + COMPUTED + PENDING
        making = plan.lasting_bytes + plan.buffers * INDEX_BYTES * edges + self._held[0] // 8
        making += pieces * sum(value_bytes(self._program, one, rows, edges) for one in kept.apart)
        needs = max([making, *(need for need, _, _ in self._needs(kept))])
        return dataclasses.replace(kept, needs=needs) if needs <= budget else plan

    def _with_spare(self, plan: Layout, budget: int) -> Layout:
        """Reserve room in every sweep for all whole values of any other, so that their memory is reused without clearing."""
        sweeps = range(len(plan.epoch.sweeps))
        whole = [sum(map(self._size, self._live(plan, plan.epoch, number))) for number in sweeps]
        work = [self._need_during(plan, plan.epoch, number) - whole[number] for number in sweeps]
        needs = max(plan.needs, max(whole) + max(work))
        return dataclasses.replace(plan, needs=needs) if needs <= budget else plan

    def _first(self, budget: int) -> _Choice:
        """Choose values to file and tasks to block until all sweeps fit, with blocks of one column."""
        choice = _Choice(frozenset(), frozenset())
        while True:
            plan = self._plan(choice, dict.fromkeys(choice.blocked, 1))
            need, which, number = max(self._needs(plan))
            if need <= budget:
                return choice
            smaller = self._smaller(choice, plan, getattr(plan, which), number, need)
            if smaller is None:
                name, left = self._program.traced.name, max(0, budget)
                raise SplitError(
                    f"{name} takes {need:,} bytes where it takes least, and {left:,} are left", missing=need - budget
                )
            choice = smaller

    def _fitted(self, choice: _Choice, budget: int) -> Layout | None:
        """Return the plan of a choice with the widest blocks that fit, or None if single columns do not fit."""
        columns = dict.fromkeys(choice.blocked, 1)
        plan = self._plan(choice, columns)
        if max(self._needs(plan))[0] > budget:
            return None
        for current in (plan.once, plan.epoch):
            for number, sweep in enumerate(current.sweeps):
                for step in sweep.blocked:
                    width = width_of(step)
                    fixed = self._held_before(plan, current, number) + self._block_work(plan, step)
                    fits = min(width, (budget - fixed) // max(1, self._column_bytes(step)))
                    columns[step.index] = -(-width // -(-width // fits))  # blocks of about one width
        plan = self._plan(choice, columns)
        return dataclasses.replace(plan, needs=max(self._needs(plan))[0])

    def _others(self, choice: _Choice) -> Iterator[_Choice]:
        """Yield the choices that differ in one decision."""
        plan = self._plan(choice, dict.fromkeys(choice.blocked, 1))
        may_block = {step.index for current in (plan.once, plan.epoch) for step in self._may_block(current)}
        for index in sorted(may_block | choice.blocked):
            yield choice._replace(blocked=choice.blocked ^ {index})
        for var in dict.fromkeys([*_may_file(plan.once), *_may_file(plan.epoch), *choice.filed]):
            yield choice._replace(filed=choice.filed ^ {var})

    def _scheduled(self, blocked: frozenset[int]) -> tuple[Schedule, Schedule]:
        if blocked not in self._schedules:
            rows = self._program.analysis.types
            lasting = [var for var in self._program.kept_of_once if isinstance(rows[var], Rows)]
            options: Any = {"symmetric": self._symmetric, "blocked": blocked}
            self._schedules[blocked] = (
                schedule(self._program, "once", lasting=lasting, **options),
                schedule(self._program, "epoch", outputs=self._outputs, **options),
            )
        return self._schedules[blocked]

    def _plan(self, choice: _Choice, columns: Mapping[int, int]) -> Layout:
        once, epoch = self._scheduled(choice.blocked)
        return Layout(
            self._program,
            self._units,
            once,
            epoch,
            columns,
            choice.filed,
            {},
            self._given,
            0,
            self._outputs,
            self._slices,
            self._threads,
        )

    def _needs(self, plan: Layout) -> Iterator[tuple[int, str, int]]:
        """Yield the bytes needed by each sweep and by the steps before it, with the schedule's name and sweep number."""
        for which in ("once", "epoch"):
            current: Schedule = getattr(plan, which)
            for number in range(len(current.sweeps)):
                before = self._need_before(plan, current, number)
                yield max(before, self._need_during(plan, current, number)), which, number

    def _need_before(self, plan: Layout, current: Schedule, number: int) -> int:
        """Bytes before a sweep, with one block of each blocked value."""
        blocks = [
            plan.blocked[step.index] * self._column_bytes(step) + self._block_work(plan, step)
            for step in current.sweeps[number].blocked
        ]
        return self._held_before(plan, current, number) + max(blocks) if blocks else 0

    def _held_before(self, plan: Layout, current: Schedule, number: int) -> int:
        live = self._live(plan, current, number)
        return sum(self._size(var) for var in live if current.made.get(var, -1) < number and var not in plan.filed)

    def _need_during(self, plan: Layout, current: Schedule, number: int) -> int:
        """Bytes during a sweep, with whole values and the work on units."""
        key = (current, number, plan.filed, plan.labelled_edges)
        if key not in self._during:  # takes most of the planning time
            sweep = current.sweeps[number]
            live = sum(map(self._size, self._live(plan, current, number)))
            gathered = [value_bytes(self._program, var, *self._most()) for var in read_at_random(sweep) & plan.filed]
            self._during[key] = live + max(work_bytes(plan, current, sweep), plan.buffers * max(gathered, default=0))
        return self._during[key]

    def _block_work(self, plan: Layout, step: Step) -> int:
        """Bytes of a unit's buffers for a block's operands, and of its edges sorted by source."""
        at_random, in_order = (
            [value_bytes(self._program, var, *self._most()) for var in values]
            for values in (step.through_edges, step.own_rows)
        )
        read = max(max(at_random, default=0), sum(in_order) + INDEX_BYTES * self._units.largest("edge"))
        filtered = filtering_bytes(plan) if step.index in plan.epoch.of_labelled else 0
        return plan.buffers * read + filtered + (push_bytes(plan, step) if step.kind == "push" else 0)

    def _column_bytes(self, step: Step) -> int:
        """Bytes per column of values in memory while a step runs in blocks: for all vertices, and results of units."""
        whole = sum(self._size(var) for var in whole_values(step))
        (result,) = step.writes
        made = (COMPUTED + PENDING) * value_bytes(self._program, result, *self._most())
        return -(-(whole + made) // width_of(step))

    def _most(self) -> tuple[int, int]:
        return self._units.largest("vertex"), self._units.largest("edge")

    def _live(self, plan: Layout, current: Schedule, number: int) -> set[Var]:
        inputs = self._program.read_inputs.keys()
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
        return found | (read_at_random(current.sweeps[number]) & plan.filed)

    def _size(self, var: Value) -> int:
        return value_bytes(self._program, var, *self._held)

    def _smaller(self, choice: _Choice, plan: Layout, current: Schedule, number: int, need: int) -> _Choice | None:
        """File the largest whole value that the sweep does not read through edges, or block the step with the most bytes."""
        live = self._live(plan, current, number)
        before = self._need_during(plan, current, number) < need
        busy = frozenset() if before else read_at_random(current.sweeps[number])
        idle = [var for var in _may_file(current) if var in live - busy - choice.filed]
        if idle:
            return choice._replace(filed=choice.filed | {max(idle, key=self._size)})
        steps = [] if before else self._may_block(current)
        chosen = max(steps, key=lambda step: self._freed(step, live), default=None)
        if chosen is None or not self._freed(chosen, live):
            return None
        return choice._replace(blocked=choice.blocked | {chosen.index})

    def _freed(self, step: Step, live: set[Var]) -> int:
        return sum(map(self._size, whole_values(step) & live))

    def _may_block(self, current: Schedule) -> list[Step]:
        return [
            step
            for sweep in current.sweeps
            for step in sweep.steps
            if step.operands and OPERATORS[step.operator].columns_apart and width_of(step) > 1
        ]

    def _with_most_read(self, plan: Layout, left: int) -> Layout:
        """Put the values read most often per byte into the remaining memory, and part of the first that does not fit."""
        resident: dict[Value, frozenset[int]] = {}
        is_full = False
        reads = _reads(plan)
        for var in sorted(reads, key=lambda var: (-reads[var], plan.size(var), str(var))):
            if not reads[var] or var in self._given or var in plan.whole:
                continue
            if plan.size(var) <= left:
                resident[var] = frozenset(range(len(plan.units)))
                left -= plan.size(var)
            elif not is_full and var not in plan.apart and (units := _spread(plan, var, left)):
                is_full, resident[var] = True, units
                left -= sum(plan.size_of_unit(var, unit) for unit in units)
        return dataclasses.replace(plan, resident=resident)


def _reads(plan: Layout) -> Counter[Value]:
    """Numbers of ordered reads and writes of each value in an epoch, except results of blocks, which stay in files."""
    current, found = plan.epoch, Counter[Value]()
    for sweep in current.sweeps:
        found.update(current.streams(sweep))
        found[plan.index_of(current, sweep)] += current.reads_index(sweep)
        for step in sweep.steps:
            for var in step.writes:
                if var in current.kept and var not in current.whole:
                    found[var] += 1
    for sweep in (*plan.once.sweeps, *current.sweeps):
        for step in sweep.blocked:
            for var in step.writes:
                del found[var]
    return found


def _spread(plan: Layout, value: Value, left: int) -> frozenset[int]:
    """Choose evenly spread units of a value for the remaining bytes, so that a sweep always reads while it computes."""
    count = len(plan.units)
    share = left / max(1, plan.size(value))
    marks = [int((count - unit) * share) for unit in range(count + 1)]
    found = []
    for unit in range(count):
        if marks[unit] > marks[unit + 1] and (size := plan.size_of_unit(value, unit)) <= left:
            found.append(unit)
            left -= size
    return frozenset(found)


def _cost(plan: Layout) -> float:
    """Cost of an epoch and the work before it, in bytes read."""
    edges = _EDGE_COST * plan.num_edges
    epoch, once = (sum(plan.traffic_of(each)) + edges * plan.index_reads_of(each) for each in (plan.epoch, plan.once))
    return epoch + _ONCE_COST * once


def _may_file(current: Schedule) -> list[Var]:
    """Values that can come from a file if a sweep reads them in order: whole values made here, but not added up."""
    return [var for var in current.made if var in current.whole - current.pushed]


def _slices(program: SplitModel, units: Units) -> Slices:
    analysis = program.analysis
    widest = {"vertex": 1, "edge": 0}
    for interface in program.interfaces:
        for var in interface.writes:
            if isinstance(found := analysis.types[var], Rows):
                widest[found.space] = max(widest[found.space], analysis.row_bytes[var])
    return slices_for(units, widest["vertex"], widest["edge"])


def _inputs(program: SplitModel) -> frozenset[Var]:
    return frozenset(program.traced.step.jaxpr.invars)
