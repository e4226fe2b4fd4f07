"""Values of a step to which vertices without a label contribute nothing.

Such a vertex has weight 0 in the loss, so its loss is 0 and its gradients are products with 0. Tasks whose results are all
of this kind need not run for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dorylax.jax_internals import Jaxpr, Var, is_literal
from dorylax.program.rows.types import Free, RowType
from dorylax.program.rows.zeros import keeps_zero


def without_unlabelled(jaxpr: Jaxpr, weights: list[Var], types: Mapping[Var, RowType]) -> frozenset[Var]:
    """Return rows that are 0 at vertices of weight 0, and sums over rows to which such vertices add 0.

    This assumes finite numbers: a product 0 · ∞ counts as 0 if it is not computed.

    Args:
        jaxpr: A step.
        weights: Its inputs for the vertices' weights in the loss.
        types: Types of its values.
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
