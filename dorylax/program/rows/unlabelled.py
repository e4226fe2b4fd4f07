"""What a vertex without a label adds to a step: nothing, of some values, whatever else is computed for it.

Its weight in the loss is 0, so is its loss, and its gradients are what is multiplied by that. Where all that some tasks
give is of this kind, they need not be run for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dorylax.jax_internals import Jaxpr, Var, is_literal
from dorylax.program.rows.types import Free, RowType
from dorylax.program.rows.zeros import keeps_zero


def without_unlabelled(jaxpr: Jaxpr, weights: list[Var], types: Mapping[Var, RowType]) -> frozenset[Var]:
    """Rows that are 0 at vertices of weight 0, and sums over rows to which such vertices add 0.

    That is so where all numbers are finite: what would be 0 · ∞ is 0 if it is not computed.

    Args:
        jaxpr: a step.
        weights: its inputs of vertices' weights in the loss.
        types: of its values.
    """
    found = set(weights)

    def is_zero(atom: Any) -> bool:
        if is_literal(atom):
            return not np.any(atom.val)
        kind = types[atom]
        return atom in found or (isinstance(kind, Free) and kind.zero)

    for equation in jaxpr.eqns:
        name, zeros = equation.primitive.name, [is_zero(atom) for atom in equation.invars]
        if (
            keeps_zero(name, zeros)
            or (name == "ne" and all(zeros))  # False
            or (name == "select_n" and zeros[0] and zeros[1])  # by False, the first
            or (name == "scatter-add" and zeros[0] and zeros[2])  # the gradient of a label's logit
        ):
            found.update(equation.outvars)
    return frozenset(var for var in found if not isinstance(types[var], Free))
