"""Counts of a graph's entries: constants of the graph as primitives, so that a traced model keeps them symbolic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dorylax.ops import segment
from dorylax.ops.primitives.operator import Operator, ResultSpec
from dorylax.ops.primitives.structure import Direction, Structure, rows_of
from dorylax.ops.row_loops.loops import Arrays, Loops
from dorylax.ops.row_loops.rows import Entries


def _degrees(structure: Structure, *, direction: Direction) -> Any:
    return segment.degrees(rows_of(structure, direction).offsets)


def _degrees_rows(_loops: Loops, _params: Mapping[str, Any], _operands: Arrays, rows: Entries, results: Arrays) -> None:
    results[0][...] = np.diff(rows.offsets)


_COUNT = ResultSpec(axes=1, dtype=lambda _: np.dtype(np.int32))

degrees = Operator(
    "degrees",
    [],
    [_COUNT],
    label="count",
    flops=lambda sizes: sizes.rows,
    lower=_degrees,
    compute_rows=_degrees_rows,
)


def _loops(structure: Structure) -> Any:
    same = segment.rows(structure.in_offsets, structure.in_neighbours.shape[0]) == structure.in_neighbours
    return segment.reduce_entries(same.astype(jnp.int32), structure.in_offsets, "sum")


def _loops_rows(_loops: Loops, _params: Mapping[str, Any], _operands: Arrays, rows: Entries, results: Arrays) -> None:
    row = np.repeat(np.arange(rows.num_rows), np.diff(rows.offsets))
    same = rows.neighbours[rows.first : rows.last] == row + rows.first_row
    results[0][...] = np.bincount(row[same], minlength=rows.num_rows)


self_loops = Operator(
    "self_loops",
    [],
    [_COUNT],
    label="count",
    flops=lambda sizes: 2 * sizes.entries,
    lower=_loops,
    compute_rows=_loops_rows,
    compares_ends=True,
)

# Integers have no tangents; without operands that could be mapped, there is nothing to batch either.
degrees.def_linear([])
self_loops.def_linear([])
