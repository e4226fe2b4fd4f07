"""Runs the steps of a sweep on one slice, from the first to the last, in one thread; and sums over slices.

Stages are compiled for a few padded numbers of rows. A stage runs on its rows piece by piece, inside one call. Its
intermediate values, such as logits, exponentials and their gradients, are several times as wide as its operands and results.
Computed for a whole slice, they exceed a core's cache and crowd concurrent gathers out of the shared cache.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import (
    ClosedJaxpr,
    Var,
    debugged,
    is_key,
    jaxpr_as_fun,
    jit,
    size_at,
    symbols_of,
    type_of,
)
from dorylax.ops.primitives.operator import OPERATORS
from dorylax.ops.row_loops.rows import RowRange, kept, packed
from dorylax.program.jaxpr.rewrite import instantiate
from dorylax.program.jaxpr.symbols import SYMBOLS, Space
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.stage_calls import chunks, cut, cut_operands, joined, padded_operands
from dorylax.program.tasks.steps import Step
from dorylax.streaming.graph_steps import UnitRows, pull
from dorylax.streaming.units import Slices

PIECE_BYTES = 1 << 17
"""Size of a piece of the widest intermediate value. A stage makes a few of them; a core's own cache has 512 KiB or more."""
_FEWEST_ROWS = 64
EDGE_CHUNK = 1 << 18
"""Maximum edge rows in one call of a stage."""
_EDGE_CLASSES = 8
# Each slice already has a thread. Work that XLA hands to another thread would wait until that thread's gather is done.
_ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}


class Unit(NamedTuple):
    """A unit in progress.

    Attributes:
        rows: Number of its rows.
        edges: Its in-edges that are traversed; if `bits` is given, the edges from which they are selected.
        read: Its rows of the values read in order.
        made: Arrays into which slices write their rows of values needed later.
        chosen: Positions of the rows to compute, ascending; other rows become 0. None: all.
        bits: Bit mask of the vertices whose edges are traversed, as in `kept`. None: all.
        lengths: Offsets by which slices are cut, if they differ from those of `edges`.
        packed: Whether `edges` holds only the edges of the rows to compute.
    """

    rows: int
    edges: UnitRows
    read: Mapping[Any, Any]
    made: Mapping[Var, np.ndarray]
    chosen: np.ndarray | None = None
    bits: np.ndarray | None = None
    lengths: np.ndarray | None = None
    packed: bool = False

    @property
    def offsets(self) -> np.ndarray:
        """Offsets of the in-edges of the rows to compute, int64 `[R+1]`, by which slices are cut."""
        if self.lengths is not None:
            return self.lengths
        if self.chosen is None or self.packed:
            return self.edges.offsets
        return np.append(0, np.cumsum(np.diff(self.edges.offsets)[self.chosen]))


class Part(NamedTuple):
    """The part of a unit that forms a slice.

    Attributes:
        bounds: First row and end row, counted among the unit's rows to compute.
        rows: For each space, first row and end row among the rows of the unit.
        chosen: Positions of the vertices to compute among them, counted from the unit's first; None: all.
    """

    bounds: tuple[int, int]
    rows: Mapping[Space, tuple[int, int]]
    chosen: np.ndarray | None

    @property
    def sizes(self) -> dict[Space, int]:
        """Numbers of rows to compute."""
        if self.chosen is not None:
            return {"vertex": len(self.chosen)}
        return {space: last - first for space, (first, last) in self.rows.items()}


@final
class SliceSteps:
    """Runs steps: those without rows, and those of a sweep on a slice. Several threads may use it at the same time.

    Args:
        program: The program.
        slices: The cut of units.
    """

    def __init__(self, program: SplitModel, slices: Slices) -> None:
        self._program, self._slices = program, slices
        self._types = program.analysis.types
        self._functions: dict[tuple[int, int], Callable[..., Sequence[Any]]] = {}
        self._compiling = threading.Lock()

    def free(self, step: Step, operands: Sequence[Any]) -> Sequence[Any]:
        """Compute the results of a step without rows."""
        return self._compute(step.index, 0, operands)

    def run(
        self,
        steps: Sequence[Step],
        unit: Unit,
        bounds: tuple[int, int],
        values: Mapping[Var, Any],
        whole: Callable[[Var], np.ndarray],
    ) -> dict[Var, Any]:
        """Run the stages and pulls of a sweep.

        Args:
            steps: Steps of the sweep.
            unit: The slice's unit.
            bounds: First row and end row of the slice, counted among the unit's rows to compute.
            values: Values without rows.
            whole: Returns a value that is read through edges, for all vertices.

        Returns:
            Results of stages without rows. Results with rows are written to their arrays in `unit.made`.
        """
        rows: dict[Var, Any] = {}
        free: dict[Var, Any] = {}
        part = part_of(unit, bounds)

        def read(var: Var) -> Any:
            if var not in rows:
                rows[var] = self.rows_of(var, unit.read[var], part)
            return rows[var]

        for step in steps:
            if step.kind == "stage":
                operands = [read(var) if isinstance(self._types[var], Rows) else values[var] for var in step.reads]
                for var, value in zip(step.writes, self._of_slice(step, part.sizes, operands), strict=True):
                    (rows if isinstance(self._types[var], Rows) else free)[var] = value
            elif step.kind == "gather":
                operands = [read(one.var) if one.publication is None else whole(one.var) for one in step.operands]
                found = pull(OPERATORS[step.operator], step.params, operands, _edges(unit, part))
                rows.update(zip(step.equations[0].outvars, found, strict=True))
        for var, place in unit.made.items():
            self._put(var, place, part, rows[var])
        return free

    def rows_of(self, var: Var, rows: np.ndarray, part: Part) -> np.ndarray:
        """Return a slice's rows from those of its unit: a view, or a copy of the rows to compute."""
        found = self._rows(var)
        if part.chosen is None:
            return cut(rows, found.axis, found.factor, *part.rows[found.space])
        return np.take(rows, entries_of(part.chosen, found.factor), axis=found.axis)

    def _put(self, var: Var, place: np.ndarray, part: Part, rows: np.ndarray) -> None:
        found = self._rows(var)
        cut(place, found.axis, found.factor, *part.rows[found.space])[...] = rows if part.chosen is None else 0
        if part.chosen is not None:
            chosen: tuple[Any, ...] = (*(slice(None),) * found.axis, entries_of(part.chosen, found.factor))
            place[chosen] = rows

    def _rows(self, var: Var) -> Rows:
        found = self._types[var]
        assert isinstance(found, Rows)
        return found

    def _of_slice(self, step: Step, sizes: Mapping[Space, int], operands: Sequence[Any]) -> list[Any]:
        """Compute a stage's rows for a slice, without padding, and its sums over these rows."""
        assert step.space is not None
        count = sizes[step.space]
        bounds = list(chunks(count, EDGE_CHUNK if step.space == "edge" else max(1, count)))
        parts = [self._call(step, cut_operands(step.sources, operands, *each), each[1] - each[0]) for each in bounds]
        return joined(step.targets, parts, [last - first for first, last in bounds], _total)

    def _call(self, step: Step, operands: Sequence[Any], count: int) -> list[Any]:
        if step.space == "vertex":
            size = self._slices.padded(count)
        else:
            grain = self._slices.entries // _EDGE_CLASSES or 1
            size = min(EDGE_CHUNK, max(1, -(-count // grain)) * grain)
        results = self._compute(step.index, size, padded_operands(step.sources, operands, count, size))
        pairs = zip(step.writes, results, strict=True)
        return [value if is_key(type_of(var)) else np.asarray(value) for var, value in pairs]

    def _compute(self, index: int, rows: int, operands: Sequence[Any]) -> Sequence[Any]:
        key = index, rows
        if key in self._functions:
            return self._functions[key](*operands)
        with self._compiling:  # only the first thread that needs it compiles
            if key not in self._functions:
                function = self._function(index, rows)
                if debugged():
                    self._functions[key] = jit(function, compiler_options=_ONE_THREAD)
                else:
                    jitted = jax.jit(function, compiler_options=_ONE_THREAD)
                    # Lowered from types, since a trace with rows holds them, in a cycle, until garbage collection.
                    self._functions[key] = jitted.lower(*map(jax.typeof, operands)).compile()
        return self._functions[key](*operands)

    def _function(self, index: int, rows: int) -> Callable[..., Sequence[Any]]:
        closed, task = self._program.function_of(index), self._program.tasks[index]
        if task.space is None:
            return jaxpr_as_fun(closed)
        interface = self._program.interfaces[index]
        reads, writes = ([self._types[var] for var in found] for found in (interface.reads, interface.writes))
        return evaluated(closed, SYMBOLS[task.space], rows, reads, writes)


def part_of(unit: Unit, bounds: tuple[int, int]) -> Part:
    """Return the slice between two of the rows of `unit.offsets`; skipped rows belong to the slice before them."""
    offsets = unit.edges.offsets
    if unit.chosen is None:
        return Part(bounds, {"vertex": bounds, "edge": (int(offsets[bounds[0]]), int(offsets[bounds[1]]))}, None)
    first, last = bounds
    begin = int(unit.chosen[first]) if first else 0
    end = int(unit.chosen[last]) if last < len(unit.chosen) else unit.rows
    return Part(bounds, {"vertex": (begin, end)}, unit.chosen[first:last])


def _edges(unit: Unit, part: Part) -> RowRange:
    if unit.packed:
        return unit.edges.between(*part.bounds)
    first, last = part.rows["vertex"]
    mine = unit.edges.between(first, last)
    if part.chosen is not None:
        return packed(mine, part.chosen - first)
    return mine if unit.bits is None else kept(mine, unit.bits)


def entries_of(rows: np.ndarray, factor: int) -> np.ndarray:
    """Return the entries of some rows, for an axis with `factor` entries per row."""
    return rows if factor == 1 else (rows[:, None] * factor + np.arange(factor)).ravel()


def evaluated(
    closed: ClosedJaxpr, symbol: str, rows: int, reads: Sequence[RowType], writes: Sequence[RowType]
) -> Callable[..., Sequence[Any]]:
    """Return a stage's function for a number of rows, ready to compile.

    Sums over rows are added up piece by piece, in order.

    Args:
        closed: The stage, with `symbol` for the number of rows.
        symbol: Symbol of the stage's space.
        rows: Number of rows.
        reads: Row types of the operands.
        writes: Row types of the results.
    """
    results = closed.jaxpr.outvars

    def at(number: int) -> Callable[..., Sequence[Any]]:
        return jaxpr_as_fun(instantiate(closed, {symbol: number}))

    piece = _rows_of_piece(closed, symbol) or rows
    count, rest = divmod(rows, max(1, piece))
    plain = all(isinstance(kind, Rows | Summed) for kind in writes) and not any(map(is_key, map(type_of, results)))
    if count + bool(rest) <= 1 or not plain:
        return at(rows)
    one, last = at(piece), at(rest) if rest else None

    def of(values: Sequence[Any], first: Any, number: int) -> list[Any]:
        return [
            jax.lax.dynamic_slice_in_dim(value, first * kind.factor, number * kind.factor, kind.axis)
            if isinstance(kind, Rows)
            else value
            for value, kind in zip(values, reads, strict=True)
        ]

    def put(totals: Sequence[Any], found: Sequence[Any], first: Any) -> list[Any]:
        return [
            jax.lax.dynamic_update_slice_in_dim(total, value, first * kind.factor, kind.axis)
            if isinstance(kind, Rows)
            else total + value
            for total, value, kind in zip(totals, found, writes, strict=True)
        ]

    def whole(*values: Any) -> Sequence[Any]:
        nothing = [
            jnp.zeros([int(size_at(dim, {symbol: rows})) for dim in type_of(atom).shape], type_of(atom).dtype)
            for atom in results
        ]
        found = jax.lax.fori_loop(
            0, count, lambda k, totals: put(totals, one(*of(values, k * piece, piece)), k * piece), nothing
        )
        return found if last is None else put(found, last(*of(values, count * piece, rest)), count * piece)

    return whole


def _rows_of_piece(closed: ClosedJaxpr, symbol: str) -> int | None:
    """Number of rows per piece, a power of two, so that it is a multiple of the vector width; None: all rows.

    None if no intermediate value is wider than the operands and results, which pass through the caches anyway.
    """
    jaxpr = closed.jaxpr
    made = _widest(symbol, (var for equation in jaxpr.eqns for var in equation.outvars))
    if made <= _widest(symbol, (*jaxpr.invars, *jaxpr.outvars)):
        return None
    return max(_FEWEST_ROWS, 1 << max(1, PIECE_BYTES // made).bit_length() - 1)


def _widest(symbol: str, values: Iterable[Any]) -> int:
    """Bytes per row of the widest value; 0 if none has rows."""
    avals = [type_of(value) for value in values]
    return max(
        (
            math.prod(int(size_at(dim, {symbol: 1})) for dim in aval.shape) * aval.dtype.itemsize
            for aval in avals
            if any(symbols_of(dim) for dim in aval.shape)
        ),
        default=0,
    )


@final
class Total:
    """A sum over slices, in their order; floating-point numbers are added up in float64.

    Args:
        dtype: Type of the sum.
    """

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._sum: Any = None

    def add(self, part: Any) -> None:
        """Add a slice's part."""
        exact = np.issubdtype(self._dtype, np.integer)
        part = np.asarray(part, None if exact else np.float64)
        self._sum = part if self._sum is None else self._sum + part

    @property
    def value(self) -> np.ndarray:
        """The sum."""
        found: np.ndarray = np.asarray(self._sum, self._dtype)
        return found


def _total(parts: Sequence[np.ndarray]) -> np.ndarray:
    total = Total(parts[0].dtype)
    for part in parts:
        total.add(part)
    return total.value
