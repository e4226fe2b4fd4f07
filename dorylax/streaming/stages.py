"""Stages on the rows of one slice, compiled for a few padded numbers of rows; and sums over slices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from dorylax.jax_internals import Var, debugged, is_key, jaxpr_as_fun, jit, type_of
from dorylax.program.jaxpr.symbols import SYMBOLS, Space
from dorylax.program.rows.types import Rows, Summed
from dorylax.program.tasks.split_model import SplitModel
from dorylax.serverless.rows import cut, pad
from dorylax.streaming.pieces import evaluated
from dorylax.streaming.schedule import Step
from dorylax.streaming.slices import Slices

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
        self._types, self._weighted = program.analysis.types, program.analysis.weighted
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
        space = self._program.tasks[step.index].space
        assert space is not None
        if space == "vertex":
            return self._call(step, operands, 0, sizes[space], self._slices.padded(sizes[space]))
        parts, counts = [], []
        for begin in range(0, max(1, sizes[space]), EDGE_CHUNK):
            count = min(EDGE_CHUNK, sizes[space] - begin)
            grain = self._slices.entries // _EDGE_CLASSES or 1
            padded = min(EDGE_CHUNK, max(1, -(-count // grain)) * grain)
            parts.append(self._call(step, operands, begin, begin + count, padded))
            counts.append(count)
        return [self._together(var, pieces, counts) for var, *pieces in zip(step.writes, *parts, strict=True)]

    def _call(self, step: Step, operands: Sequence[Any], first: int, last: int, size: int) -> list[Any]:
        count = last - first
        given = []
        for var, value in zip(step.reads, operands, strict=True):
            found = self._types[var]
            if isinstance(found, Rows):
                rows = cut(value, found.axis, found.factor, first, last)
                given.append(pad(rows, found.axis, found.factor, count, size, zero=var in self._weighted))
            else:
                given.append(value)
        results = self._compute(step.index, size, given)
        return [self._unpadded(var, value, count) for var, value in zip(step.writes, results, strict=True)]

    def _unpadded(self, var: Var, value: Any, count: int) -> Any:
        found = self._types[var]
        if isinstance(found, Rows):
            return cut(value, found.axis, found.factor, 0, count)
        return value if is_key(type_of(var)) else np.asarray(value)

    def _together(self, var: Var, pieces: Sequence[Any], counts: Sequence[int]) -> Any:
        found = self._types[var]
        if isinstance(found, Rows):
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=found.axis)
        if isinstance(found, Summed):
            total = Total(var)
            for piece, count in zip(pieces, counts, strict=True):
                total.add(piece if count else np.zeros_like(piece))
            return total.value
        return pieces[0]

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
        var: The value.
    """

    def __init__(self, var: Var) -> None:
        self._dtype = type_of(var).dtype
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
