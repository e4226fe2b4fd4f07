"""Analyses of a step's values: row types, and dependence on the loss, on parameters, and on rows."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import final

from dorylax.jax_internals import JaxprEqn, Var, is_key
from dorylax.program.jaxpr.graph_operators import is_global_sum, is_graph_operator
from dorylax.program.jaxpr.rewrite import reached
from dorylax.program.jaxpr.symbols import SYMBOLS, value_bytes
from dorylax.program.rows.check import infer
from dorylax.program.rows.types import Rows, RowType, Summed
from dorylax.program.rows.zeros import without_unlabelled
from dorylax.program.tracing.traced import Traced

# Each stage that reads row-free results of these recomputes them, which is cheaper than sending them.
_CHEAP_NAMES = """
abs add add_any and bitcast_convert_type broadcast_in_dim ceil clamp concatenate convert_element_type copy copy_p cos
div eq erf exp exp2 expand_dims expm1 floor ge gt imag integer_pow iota is_finite le log log1p logistic lt max min mul
ne neg not or pad pow real reduce_precision rem reshape rev round rsqrt select_n shift_left shift_right_arithmetic
shift_right_logical sign sin slice sqrt square squeeze split stack stop_gradient sub tan tanh tile transpose unstack xor
"""
_CHEAP = frozenset(_CHEAP_NAMES.split())


@final
@dataclasses.dataclass(frozen=True, eq=False)
class StepAnalysis:
    """Analyses of `traced.step`, each computed on first use.

    Args:
        traced: The traced model.
    """

    traced: Traced

    @cached_property
    def types(self) -> dict[Var, RowType]:
        """Row type of every value."""
        row_types = [entry.row_type for entry in self.traced.inputs]
        return infer(self.traced.step.jaxpr, row_types, phase="" if not self.traced.trains else "in the gradient: ")

    @cached_property
    def row_bytes(self) -> dict[Var, int]:
        """Bytes per row of every value that has rows. Cached, since sizes of symbols take long to compute."""
        one = dict.fromkeys(SYMBOLS.values(), 1)
        return {var: value_bytes(var.aval, one) for var, found in self.types.items() if isinstance(found, Rows)}

    @cached_property
    def backward(self) -> frozenset[Var]:
        """Values of the backward pass, which depend on the cotangent of the loss."""
        return self._reached(self.traced.variables("loss_scale"))

    @cached_property
    def weighted(self) -> frozenset[Var]:
        """Rows that depend on the vertices' weights, as cotangents do: if the weights are 0, so are sums over them."""
        return self._reached(self.traced.variables("weights", "real"), through_sums=False)

    @cached_property
    def without_unlabelled(self) -> frozenset[Var]:
        """Rows and sums over rows to which vertices without a label contribute nothing: see `dorylax.program.rows.zeros`."""
        return without_unlabelled(self.traced.step.jaxpr, self.traced.variables("weights"), self.types)

    @cached_property
    def constant(self) -> frozenset[Var]:
        """Values that depend only on data, neither on parameters nor on the epoch."""
        entries = zip(self.traced.step.jaxpr.invars, self.traced.inputs, strict=True)
        changing = self._reached([var for var, entry in entries if not entry.of_data])
        return frozenset(self.types.keys() - changing)

    @cached_property
    def of_rows(self) -> frozenset[Var]:
        """Values that depend on rows that differ, other than by padding.

        A sum over all rows does not count, since it is one value for all.
        """
        entries = zip(self.traced.step.jaxpr.invars, self.traced.inputs, strict=True)
        return self._reached(
            [var for var, entry in entries if entry.space is not None and entry.role not in ("count", "real")]
            + self.traced.variables("graph"),
            through_sums=False,
        )

    @cached_property
    def order(self) -> dict[int, int]:
        """Position of each equation in the step, by the equation's id."""
        return {id(equation): k for k, equation in enumerate(self.traced.step.jaxpr.eqns)}

    def floats(self, equation: JaxprEqn) -> bool:
        """Whether every task that reads the equation copies it: rows that are all alike, or cheap row-free values."""
        return id(equation) in self._floating

    @cached_property
    def _floating(self) -> frozenset[int]:
        return frozenset(id(equation) for equation in self.traced.step.jaxpr.eqns if self._is_floating(equation))

    def _is_floating(self, equation: JaxprEqn) -> bool:
        if is_graph_operator(equation) or any(var in self.of_rows for var in equation.outvars):
            return False
        if any(isinstance(self.types[var], Rows) for var in equation.outvars):
            return True
        if any(isinstance(self.types[var], Summed) for var in equation.outvars):
            return False
        return equation.primitive.name in _CHEAP and not any(is_key(var.aval) for var in equation.outvars)

    def _reached(self, start: list[Var], *, through_sums: bool = True) -> frozenset[Var]:
        return reached(self.traced.step.jaxpr.eqns, start, stops=None if through_sums else is_global_sum)
