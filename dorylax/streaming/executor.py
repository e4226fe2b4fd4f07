"""Runs a program sweep by sweep over units of rows: whole arrays stay in memory, and other values stream unit by unit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax import aligned
from dorylax.graph.compressed import as_int64
from dorylax.graph.mapped import mapping_of, release
from dorylax.jax_internals import Var, is_literal, size_at, thread_settings, type_of
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.row_loops.rows import RowRange, kept, packed
from dorylax.program.jaxpr.symbols import SYMBOLS
from dorylax.program.model.base import Tree
from dorylax.program.rows.types import Rows, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.steps import Step
from dorylax.program.tracing.arguments import StepResult, step_values, unpack
from dorylax.streaming.columns import (
    Column,
    JoinedColumn,
    PiecesColumn,
    ScratchColumn,
    WholeColumn,
    WrittenColumn,
)
from dorylax.streaming.data import StreamData, data_inputs, index_column
from dorylax.streaming.graph_steps import GraphThreads, Job, UnitRows, decoded, encoded, pull
from dorylax.streaming.layout import FROM_LABELLED, INDEX, TO_LABELLED, Layout, Value, work_bytes
from dorylax.streaming.schedule import Schedule, Sweep
from dorylax.streaming.slice_steps import SliceSteps, Total, Unit, part_of
from dorylax.streaming.spare import SpareArrays, give_back_freed_memory, keep_freed_memory
from dorylax.streaming.transfers import COMPUTED, Prefetcher, Traffic, Writer

_AXES = 3  # number of axes of rows with heads and columns

HandOver = Callable[[int, Sequence[np.ndarray]], None]
"""`(unit, rows)`: takes a unit's rows of `Layout.outputs`; the rows are valid until it returns."""


@dataclasses.dataclass
class _Run:
    """State of one pass through the sweeps of a schedule.

    Attributes:
        schedule: The schedule.
        values: Values without rows, computed so far.
        hand_over: Takes rows of the output; None if the program outputs no rows.
        totals: Sums over the units of the current sweep.
    """

    schedule: Schedule
    values: dict[Var, Any]
    hand_over: HandOver | None
    totals: dict[Var, Total] = dataclasses.field(default_factory=dict)


@final
class StreamedProgram:
    """A program on data, ready to run any number of epochs.

    Args:
        layout: Placement of all values in memory and files.
        data: Data of the run.
        scratch: Folder for the files.
        like: Another program on the same data and units that outlives this one; its in-memory columns and values computed
            once are shared.

    Attributes:
        traffic: Bytes and edges so far.

    Raises:
        OSError: A file cannot be opened, or the disk is full.
        RunError: A file of the data has been replaced.
    """

    def __init__(self, layout: Layout, data: StreamData, scratch: Path, *, like: StreamedProgram | None = None) -> None:
        keep_freed_memory()
        self._layout, self._scratch = layout, scratch
        self._program, self._units = layout.program, layout.units
        self._types = self._program.analysis.types
        self._steps = SliceSteps(self._program, layout.slices)
        self._offsets = as_int64(data.graph.incoming.offsets)
        self._mask = data.train_mask
        self.traffic = Traffic()
        self._columns: dict[Any, Column] = {}  # by value; the neighbours' column by INDEX
        self._files: dict[Var, Column] = {}  # file columns of values that are in memory only during a sweep
        self._borrowed: set[Column] = set()
        self._spare: SpareArrays = SpareArrays() if like is None else like._spare
        self._made = 0  # number of files made
        self._free: dict[Var, Any] = {}
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            count = layout.threads
            threads = ThreadPoolExecutor(count, "dorylax-graph", initializer=thread_settings())
            pool = self._closing.enter_context(threads)
            reader = self._closing.enter_context(ThreadPoolExecutor(layout.buffers - COMPUTED, "dorylax-read"))
            self._graph = GraphThreads(pool, count)
            writer = self._closing.enter_context(ThreadPoolExecutor(1, "dorylax-write"))
            self._prefetcher = Prefetcher(reader, self.traffic, layout.buffers)
            self._writer = Writer(writer, self.traffic)
            self._spare.clear()  # the data of this program need the memory of the spare arrays of `like`
            self._take_data(data, like)
            if like is None or not self._take_once(like):
                self._compute_once()
            if layout.apart:
                self._keep_apart()
            stack.pop_all()

    def _take_data(self, data: StreamData, like: StreamedProgram | None) -> None:
        columns: dict[Any, Column] = {INDEX: index_column(data.graph, self._units)}
        inputs = data_inputs(self._program, data, self._units)
        columns |= {var: value for var, value in inputs.items() if isinstance(value, Column)}
        names = {var: (entry.role, entry.name) for var, entry in self._program.read_inputs.items()}
        there = {} if like is None else dict(like.in_memory())
        for value, column in list(columns.items()):
            shared = there.get(names.get(value, INDEX))
            if shared is not None:
                column.close()
                self._borrowed.add(shared)
            columns[value] = self._settled(value, column) if shared is None else shared
        self._columns = columns
        self._free = {var: value for var, value in inputs.items() if not isinstance(value, Column)}

    def in_memory(self) -> Iterator[tuple[Any, Column]]:
        """Yield the columns of data held in memory in pieces, by role and name of their input, and the index column."""
        names: dict[Any, Any] = {var: (entry.role, entry.name) for var, entry in self._program.read_inputs.items()}
        for value, column in self._columns.items():
            if isinstance(column, PiecesColumn) and (value == INDEX or value in names):
                yield names.get(value, INDEX), column

    def _compute_once(self) -> None:
        files = dict(self._columns)
        self._run(_Run(self._layout.once, self._free, None))
        # Values that only the tasks before training read through edges go back to their files.
        self._columns.update({var: files[var] for var in files if var not in self._layout.epoch.whole})

    def _take_once(self, like: StreamedProgram) -> bool:
        """Take the values that another program has computed once; return False unless it has all of them."""
        theirs = dict(zip(_once(like._program), like._program.kept_of_once, strict=True))
        mine = _once(self._program)
        if not mine or not theirs.keys() >= set(mine):
            return False
        for var, key in zip(self._program.kept_of_once, mine, strict=True):
            if isinstance(self._types[var], Rows):
                self._columns[var] = like._columns[theirs[key]]
                self._borrowed.add(self._columns[var])
            else:
                self._free[var] = like._free[theirs[key]]
        return True

    def step(self, params: Tree, streams: Tree, state: Tree, *, seed: int, epoch: int) -> StepResult:
        """Train one epoch; see `ProgramFunction.step`.

        Raises:
            OSError: The disk is full, or a file cannot be read.
        """
        changing = step_values(self._program.traced, params, streams, state, seed=seed, epoch=epoch)
        return unpack(self._program.traced, self._outputs(changing, None), state)

    def forward(self, params: Tree, streams: Tree, state: Tree, hand_over: HandOver) -> None:
        """Compute the output of a program without a loss, unit by unit.

        Args:
            params: Parameters.
            streams: The model's random streams.
            state: The model's other state.
            hand_over: Takes the rows of the output.

        Raises:
            OSError: As for `step`.
        """
        self._outputs(step_values(self._program.traced, params, streams, state, seed=0, epoch=0), hand_over)

    def close(self) -> None:
        """Release threads, memory and files."""
        self._closing.close()  # threads first, since they may be reading
        for column in {*self._columns.values(), *self._files.values()} - self._borrowed:
            column.close()
        self._columns.clear()
        self._files.clear()
        self._spare.clear()

    def _outputs(self, changing: Mapping[int, Any], hand_over: HandOver | None) -> list[Any]:
        """Run an epoch; return the program's outputs, with None for those with rows."""
        jaxpr = self._program.traced.step.jaxpr
        values = self._free | {jaxpr.invars[k]: value for k, value in changing.items()}
        self._run(_Run(self._layout.epoch, values, hand_over))
        return [
            np.asarray(atom.val, type_of(atom).dtype) if is_literal(atom) else values.get(atom)
            for atom in jaxpr.outvars
        ]

    def _run(self, run: _Run) -> None:
        schedule, values = run.schedule, run.values
        for number, sweep in enumerate(schedule.sweeps):
            for step in sweep.before:
                if step.operands:
                    self._blocked(step)
                else:
                    results = self._steps.free(step, [values[var] for var in step.reads])
                    values.update(zip(step.writes, results, strict=True))
            if sweep.steps:
                self._prepare(schedule, sweep)
                self._sweep(run, sweep)
                for var in list(self._files):
                    self._forget(var)
                    self._columns[var] = self._files.pop(var)
            for var in schedule.kept - schedule.lasting:
                if max(schedule.made[var], schedule.last_read.get(var, 0)) == number:
                    self._forget(var)

    def _prepare(self, schedule: Schedule, sweep: Sweep) -> None:
        """Load values that the sweep reads at random, and create columns for values that later sweeps read."""
        for step in sweep.steps:
            for var in step.through_edges:
                if not isinstance(self._columns[var], WholeColumn):
                    if var in self._layout.filed:
                        self._files[var] = self._columns[var]
                    self._columns[var] = WholeColumn(self._gathered(var, None), self._units.vertices)
            for var in step.writes:
                if var in schedule.kept and var not in self._columns:
                    self._columns[var] = self._new(var, schedule.pushed)
        self._keep_spare(schedule, sweep)

    def _sweep(self, run: _Run, sweep: Sweep) -> None:
        schedule = run.schedule
        columns: dict[Any, Column] = {var: self._columns[var] for var in schedule.streams(sweep)}
        if schedule.reads_index(sweep):
            index = self._layout.index_of(schedule, sweep)
            columns[index] = self._columns[index]
        chosen = self._labelled if schedule.for_labelled(sweep) else lambda _: None
        bits = self._labelled_bits() if schedule.from_labelled(sweep) and INDEX in columns else None
        run.totals.clear()

        def begun(number: int, rows: dict[Any, Any]) -> Job:
            made = {var: self._place_of(schedule, var, number) for var in schedule.outlive(sweep)}
            edges = self._unit_rows(number, rows.pop(INDEX, None))
            count, first = len(edges.offsets) - 1, edges.first
            unit = Unit(count, edges, rows, made, chosen(number), bits)
            if (piece := rows.pop(FROM_LABELLED, None)) is not None:
                unit = unit._replace(edges=decoded(piece, count, first), lengths=edges.offsets)
            elif (neighbours := rows.pop(TO_LABELLED, None)) is not None:
                unit = unit._replace(edges=UnitRows(unit.offsets, neighbours, first), packed=True)
            return self._begun(run, sweep, number, unit)

        self._pass(columns, begun)
        run.values.update({var: total.value for var, total in run.totals.items()})

    def _begun(self, run: _Run, sweep: Sweep, number: int, unit: Unit) -> Job:
        """Start a sweep's steps on the slices of a unit; the job's `finish` runs the steps that need the whole unit."""
        offsets = unit.offsets
        if run.schedule.reads_index(sweep):
            self.traffic.edges += int((unit.edges.offsets if unit.chosen is None else offsets)[-1])
        if len(offsets) == 1:  # no slice writes these rows
            for place in unit.made.values():
                place[...] = 0

        def work(bounds: tuple[int, int]) -> dict[Var, Any]:
            return self._steps.run(sweep.steps, unit, bounds, run.values, self._whole)

        def finish(parts: list[dict[Var, Any]]) -> None:
            for part in parts:
                for var, value in part.items():
                    if isinstance(self._types[var], Summed):
                        run.totals.setdefault(var, Total(type_of(var).dtype)).add(value)
                    else:
                        run.values[var] = value
            there = {**unit.read, **unit.made}
            for step in sweep.steps:
                if step.kind == "push":
                    self._push(step, unit.edges, there)
                elif step.kind == "output":
                    assert run.hand_over is not None
                    run.hand_over(number, [there[var] for var in step.reads])
            for var in unit.made:
                if var in run.schedule.kept and not isinstance(self._columns[var], WholeColumn):
                    self._write(self._columns[var], number, there[var])

        return Job(self._graph.begin(work, self._layout.slices.of(offsets)), finish)

    def _labelled(self, unit: int) -> np.ndarray | None:
        """Positions of a unit's vertices that take part in the loss; None: all."""
        first, last = self._units.bounds("vertex", unit)
        chosen = np.flatnonzero(self._mask[first:last])
        return None if len(chosen) == last - first else chosen

    def _keep_apart(self) -> None:
        """Write the edges from and to labelled vertices, once."""
        columns = {value: self._pieces(value, np.int32) for value in self._layout.apart}
        self._columns.update(columns)  # so that `close` closes them after an error, too
        bits = self._labelled_bits()
        assert bits is not None

        def begun(number: int, rows: dict[Any, Any]) -> Job:
            edges = self._unit_rows(number, rows[INDEX])
            whole = edges.between(0, len(edges.offsets) - 1)

            def finish(found: list[RowRange]) -> None:
                if FROM_LABELLED in columns:
                    self._write(columns[FROM_LABELLED], number, encoded(found))
                if TO_LABELLED in columns:
                    chosen = self._labelled(number)
                    mine = whole if chosen is None else packed(whole, chosen)
                    self._write(columns[TO_LABELLED], number, np.array(mine.neighbours))

            slices = self._layout.slices.of(edges.offsets) if FROM_LABELLED in columns else []
            return Job(self._graph.begin(lambda bounds: kept(edges.between(*bounds), bits), slices), finish)

        self._pass({INDEX: self._columns[INDEX]}, begun)

    def _labelled_bits(self) -> np.ndarray | None:
        """Bit mask of the vertices that take part in the loss; None: all."""
        return None if self._mask.all() else np.packbits(self._mask, bitorder="little")

    def _place_of(self, schedule: Schedule, var: Var, unit: int) -> np.ndarray:
        """Array into which slices write a unit's rows of a value."""
        column = self._columns[var] if var in schedule.kept else None
        if isinstance(column, WholeColumn):
            return column.read(unit, None)
        return aligned.empty(self._unit_shape(var, unit), type_of(var).dtype)

    def _push(self, step: Step, edges: UnitRows, rows: Mapping[Var, Any]) -> None:
        operands = [
            np.asarray(rows[one.var]) if one.publication is None else self._whole(one.var) for one in step.operands
        ]
        totals = [self._whole(var) for var in step.equations[0].outvars]
        self._graph.push(OPERATORS[step.operator], step.params, operands, edges, totals)

    def _blocked(self, step: Step) -> None:
        """Run a gather or push over all units, for one block of columns after the other."""
        (result,) = step.equations[0].outvars
        columns, width = self._layout.blocked[step.index], int(size_at(type_of(result).shape[-1], {}))
        blocks = [slice(first, min(first + columns, width)) for first in range(0, width, columns)]
        parts = [self._block(step, block) for block in blocks]
        if (old := self._columns.pop(result, None)) is not None:
            old.close()
        self._columns[result] = JoinedColumn(parts)

    def _block(self, step: Step, block: slice) -> Column:
        """Run a gather or push for one block of columns.

        Its whole arrays become spare at the end, so that two blocks are never in memory together.
        """
        (result,) = step.equations[0].outvars
        operator, adds = OPERATORS[step.operator], step.kind == "push"
        whole = {var: self._gathered(var, block) for var in step.through_edges}
        if adds:
            whole[result] = self._zeros(result, block)
        self._spare.clear()
        part_column = self._stored(type_of(result).dtype)
        needed = {value: self._columns[value] for value in (INDEX, *step.own_rows)}
        bits = self._labelled_bits() if step.index in self._layout.epoch.of_labelled else None

        def pushed(number: int, rows: dict[Any, Any]) -> Job:
            operands = [
                _columns_of(rows[one.var], block) if one.publication is None else whole[one.var]
                for one in step.operands
            ]
            edges = self._unit_rows(number, rows[INDEX])
            self.traffic.edges += len(edges.neighbours)
            return Job([], lambda _: self._graph.push(operator, step.params, operands, edges, [whole[result]]))

        def pulled(number: int, rows: dict[Any, Any]) -> Job:
            made = aligned.empty(self._unit_shape(result, number, block), type_of(result).dtype)
            edges = self._unit_rows(number, rows[INDEX])
            unit = Unit(len(edges.offsets) - 1, edges, rows, {})

            def work(bounds: tuple[int, int]) -> None:
                part = part_of(unit, bounds)
                operands = [
                    whole[one.var]
                    if one.publication is not None
                    else _columns_of(self._steps.rows_of(one.var, rows[one.var], part), block)
                    for one in step.operands
                ]
                mine = unit.edges.between(*bounds)
                (found,) = pull(operator, step.params, operands, mine if bits is None else kept(mine, bits))
                made[slice(*bounds)] = found

            slices = self._layout.slices.of(unit.offsets)
            self.traffic.edges += int(unit.offsets[-1])
            return Job(self._graph.begin(work, slices), lambda _: self._write(part_column, number, made))

        def write_totals() -> None:
            for number in range(len(self._units)):
                self._write(part_column, number, whole[result][slice(*self._units.bounds("vertex", number))])

        if adds:
            self._pass(needed, pushed, write_totals)
        else:
            self._pass(needed, pulled)
        for array in whole.values():
            self._spare.put(array)
        return part_column

    def _pass(
        self,
        columns: Mapping[Any, Column],
        begun: Callable[[int, dict[Any, Any]], Job],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """Run a job for each unit, which `begun` starts on the unit's rows, then `finish`; return when all is written."""
        with self._writer.finished():
            self._graph.overlapped(begun(number, rows) for number, rows in enumerate(self._read(columns)))
            finish()
        release(self._offsets)
        give_back_freed_memory()

    def _read(self, columns: Mapping[Any, Column]) -> Iterator[dict[Any, Any]]:
        """Yield the rows of each unit in turn."""
        return self._prefetcher.over(range(len(self._units)), columns)

    def _gathered(self, var: Var, block: slice | None) -> np.ndarray:
        """Read a value, or a block of its columns, for all vertices into memory."""
        array = self._array(var, block)
        for unit, rows in enumerate(self._read({var: self._columns[var]})):
            first, last = self._units.bounds("vertex", unit)
            array[first:last] = rows[var] if block is None else rows[var][..., block]
        return array

    def _array(self, var: Var, block: slice | None) -> np.ndarray:
        """Uninitialised array for a value, or for a block of its columns, of all vertices."""
        shape = tuple(int(size_at(dim, {})) for dim in type_of(var).shape[1:])
        if block is not None:
            shape = (*shape[:-1], block.stop - block.start)
        return self._spare.take((self._layout.num_vertices, *shape), type_of(var).dtype)

    def _zeros(self, var: Var, block: slice | None) -> np.ndarray:
        array = self._array(var, block)
        array[...] = 0
        return array

    def _unit_rows(self, unit: int, neighbours: np.ndarray | None) -> UnitRows:
        """Edges of a unit. A sweep that does not read neighbours gets the same offsets, so its slices are the same."""
        first, last = self._units.bounds("vertex", unit)
        offsets = self._offsets[first : last + 1]
        return UnitRows(offsets - offsets[0], np.zeros(0, np.int32) if neighbours is None else neighbours, first)

    def _settled(self, value: Any, column: Column) -> Column:
        """Move a column into memory, whole or in part, if the layout keeps it there and it is in a file."""
        units = sorted(self._layout.resident.get(value, ()))
        if not column.room(0) or not units:
            return column
        whole = len(units) == len(self._units)
        found = PiecesColumn(frozenset(units), None if whole else column)
        for unit, rows in zip(units, self._prefetcher.over(units, {value: column}), strict=True):
            found.write(unit, rows[value])
        if whole:
            column.close()
        return found

    def _new(self, var: Var, pushed: Collection[Var]) -> WrittenColumn:
        if var in self._layout.whole:
            array = self._zeros(var, None) if var in pushed else self._array(var, None)
            return WholeColumn(array, self._units.vertices)
        return self._pieces(var, type_of(var).dtype)

    def _pieces(self, value: Value, dtype: Any) -> WrittenColumn:
        """New column for each unit's rows of a value: in memory, partly in memory, or in a file, as the layout says."""
        units = self._layout.resident.get(value, frozenset())
        others = None if len(units) == len(self._units) else self._stored(dtype)
        return PiecesColumn(units, others) if units or others is None else others

    def _stored(self, dtype: Any) -> WrittenColumn:
        """New file column."""
        self._made += 1
        return ScratchColumn(self._scratch, f"{id(self):x}-{self._made}", len(self._units), dtype)

    def _unit_shape(self, var: Var, unit: int, block: slice | None = None) -> tuple[int, ...]:
        """Shape of a unit's rows of a value, or of a block of their columns."""
        found = self._types[var]
        assert isinstance(found, Rows)
        first, last = self._units.bounds(found.space, unit)
        shape = tuple(int(size_at(dim, {SYMBOLS[found.space]: last - first})) for dim in type_of(var).shape)
        return shape if block is None else (*shape[:-1], block.stop - block.start)

    def _whole(self, var: Var) -> np.ndarray:
        column = self._columns[var]
        assert isinstance(column, WholeColumn)
        return column.array

    def _keep_spare(self, schedule: Schedule, sweep: Sweep) -> None:
        """Keep spare arrays in the memory that the plan provides and the sweep does not use."""
        layout = self._layout
        planned = layout.once.whole | layout.epoch.whole  # not data that their owner holds in memory
        whole = [self._columns[var] for var in planned & self._columns.keys()]
        there = sum(one.array.nbytes for one in whole if isinstance(one, WholeColumn) and mapping_of(one.array) is None)
        self._spare.keep(layout.needs - there - work_bytes(layout, schedule, sweep))

    def _write(self, column: Column, unit: int, rows: np.ndarray) -> None:
        assert isinstance(column, WrittenColumn)
        self._writer.put(column, unit, rows)

    def _forget(self, var: Var) -> None:
        """Release the whole array of a value that no later sweep reads; files and pieces are reused in the next epoch."""
        column = self._columns.get(var)
        if isinstance(column, WholeColumn):
            del self._columns[var]
            self._spare.put(column.array)


def _columns_of(rows: np.ndarray, block: slice) -> np.ndarray:
    """Block of columns of rows with heads and columns; rows with one number per head are returned unchanged."""
    return np.ascontiguousarray(rows[..., block]) if rows.ndim == _AXES else rows


def _once(program: SplitModel) -> list[str]:
    """Describe how the values that are computed once are computed; equal texts mean equal values on the same data."""
    return program.traced.described(program.traced.step.jaxpr, program.kept_of_once)
