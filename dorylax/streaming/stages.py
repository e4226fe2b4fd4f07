"""Stages on the rows of one slice, compiled for a few padded numbers of rows; and sums over slices.

A stage runs on its rows piece by piece, inside one call. Its intermediate values, such as logits, exponentials and their
gradients, are several times as wide as its operands and results. Computed for a whole slice, they exceed a core's cache and
crowd concurrent gathers out of the shared cache.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.jax_internals import ClosedJaxpr, debugged, is_key, jaxpr_as_fun, jit, size_at, symbols_of, type_of
from dorylax.program.jaxpr.rewrite import instantiate
from dorylax.program.jaxpr.symbols import SYMBOLS, Space
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.program.tasks.stage_calls import chunks, cut_operands, joined, padded_operands
from dorylax.program.tasks.steps import Step
from dorylax.streaming.slices import Slices

BYTES = 1 << 17
"""Size of a piece of the widest intermediate value. A stage makes a few of them; a core's own cache has 512 KiB or more."""
_FEWEST_ROWS = 64


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
    return max(_FEWEST_ROWS, 1 << max(1, BYTES // made).bit_length() - 1)


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


EDGE_CHUNK = 1 << 18
"""Maximum edge rows in one call of a stage."""
_EDGE_CLASSES = 8
# Each slice already has a thread. Work that XLA hands to another thread would wait until that thread's gather is done.
_ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}


@final
class Stages:
    """Compiled functions of a program's stages and of its steps without rows.

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

    def of_slice(self, step: Step, sizes: Mapping[Space, int], operands: Sequence[Any]) -> list[Any]:
        """Compute the results of a stage for a slice: rows without padding, and sums over its rows.

        Args:
            step: The stage.
            sizes: Numbers of the slice's vertex rows and edge rows.
            operands: Rows of the slice, and values without rows.
        """
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
