"""Counts of a graph's entries: constants of the graph as primitives, so that a traced model keeps them symbolic."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from dorylax.jax_internals import ShapedArray
from dorylax.ops import segment
from dorylax.ops.primitives.base import Direction, Operator, Structure, num_rows, rows_of


def _degrees_abstract(structure: Structure, *, direction: Direction) -> Any:
    return ShapedArray((num_rows(structure, direction),), jnp.int32)


def _degrees(structure: Structure, *, direction: Direction) -> Any:
    return segment.degrees(rows_of(structure, direction).offsets)


degrees = Operator("dorylax_degrees", 0, abstract=_degrees_abstract, lower=_degrees)


def _loops_abstract(structure: Structure) -> Any:
    return ShapedArray((num_rows(structure, "in"),), jnp.int32)


def _loops(structure: Structure) -> Any:
    same = segment.rows(structure.in_offsets, structure.in_neighbours.shape[0]) == structure.in_neighbours
    return segment.reduce_entries(same.astype(jnp.int32), structure.in_offsets, "sum")


self_loops = Operator("dorylax_self_loops", 0, abstract=_loops_abstract, lower=_loops)

# Integers have no tangents; without operands that could be mapped, there is nothing to batch either.
degrees.def_linear([])
self_loops.def_linear([])
