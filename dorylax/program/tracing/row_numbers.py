"""Makes values that depend on a row's number read it from an input, so that they do not depend on where the row is computed.

A row's number is its position in the user's arrays: for a vertex its id, for an edge its rank among the ids of edges.

- Random bits for rows are hashed from the row's number: bit-identical to `jax.random.bits` on the graph in the given order.
- `iota` over rows (`jnp.arange(num_vertices)`) becomes their numbers.
- A number of rows as a value (`x.shape[0]` in arithmetic) becomes that of the whole graph, an input of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dorylax.jax_internals import JaxprEqn, size_at, symbols_of, type_of
from dorylax.ops.row_random import row_bits
from dorylax.program.jaxpr.errors import refuse
from dorylax.program.jaxpr.symbols import SYMBOLS, Space, row_space
from dorylax.program.tracing.traced import Input

Replacement = tuple[Callable[..., Any], list[Any]]


class RowNumbers(NamedTuple):
    """Positions of the traced function's inputs for numbers of rows and for row counts."""

    numbers: Mapping[Space, int]  # int32 [n] and [e]
    counts: Mapping[Space, int]  # int32 []

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> RowNumbers:
        """Find them among the inputs of a traced model."""
        found = {(entry.role, entry.space): k for k, entry in enumerate(inputs)}
        return cls(
            numbers={"vertex": found["ids", "vertex"], "edge": found["places", "edge"]},
            counts={space: found["count", space] for space in SYMBOLS},
        )

    def replace(self, equation: JaxprEqn, operands: Sequence[Any], inputs: Sequence[Any]) -> Replacement | None:
        """Return a function and its operands to replace an equation; None to keep the equation.

        Args:
            equation: Any equation of a flat jaxpr.
            operands: Operands of the equation.
            inputs: Inputs of the traced function.

        Raises:
            SplitError: Randomness for rows has a form that cannot be drawn row by row.
        """
        name = equation.primitive.name
        if name == "random_bits":
            return self._bits(equation, operands, inputs)
        if name == "iota":
            return self._iota(equation, inputs)
        if name == "dim_as_value":
            return self._count(equation, inputs)
        return None

    def _bits(self, equation: JaxprEqn, operands: Sequence[Any], inputs: Sequence[Any]) -> Replacement | None:
        shape, bit_width = equation.params["shape"], equation.params["bit_width"]
        axes = [axis for axis, size in enumerate(shape) if row_space(size) is not None]
        if not axes:
            return None
        (key,) = operands
        space, factor = row_space(shape[axes[0]]) or ("vertex", 0)
        if len(axes) > 1 or factor != 1 or key.aval.shape:
            refuse(
                equation,
                f"randomness of shape {_shown(shape)} cannot be drawn vertex by vertex",
                "Draw one array with one axis of vertices (or edges) from a single key: shape [V, …]",
            )
        axis = axes[0]
        rest = (*shape[:axis], *shape[axis + 1 :])

        def draw(key: Any, numbers: Any) -> Any:
            rows = row_bits(key, numbers, math.prod(rest), bit_width)
            return jnp.moveaxis(rows.reshape(numbers.shape[0], *rest), 0, axis)

        return draw, [key, inputs[self.numbers[space]]]

    def _iota(self, equation: JaxprEqn, inputs: Sequence[Any]) -> Replacement | None:
        params = equation.params
        found = row_space(params["shape"][params["dimension"]])
        if found is None or found[1] != 1:
            return None

        def number(numbers: Any) -> Any:
            return jax.lax.broadcast_in_dim(numbers.astype(params["dtype"]), params["shape"], (params["dimension"],))

        return number, [inputs[self.numbers[found[0]]]]

    def _count(self, equation: JaxprEqn, inputs: Sequence[Any]) -> Replacement:
        dim, dtype = equation.params["dim"], type_of(equation.outvars[0]).dtype
        spaces = [space for space in self.counts if SYMBOLS[space] in symbols_of(dim)]

        def count(*sizes: Any) -> Any:
            values = {SYMBOLS[space]: size.astype(dtype) for space, size in zip(spaces, sizes, strict=True)}
            return jnp.asarray(size_at(dim, values), dtype)

        return count, [inputs[self.counts[space]] for space in spaces]


def _shown(shape: Sequence[Any]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
