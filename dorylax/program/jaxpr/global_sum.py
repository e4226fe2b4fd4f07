"""`global_sum`: the operation of a program at which the parts of a sum over all rows meet.

A pipeline runs it as a synchronisation point: each interval contributes its part and receives the total. If all rows are in
one place, it is the identity. Models do not call it: `complete_sums` inserts it into a differentiated step.
"""

from __future__ import annotations

from dorylax.jax_internals import JaxprEqn, Primitive, mlir

GLOBAL_SUM = Primitive("global_sum")
"""`part -> sum of all parts`, of the same shape and dtype."""

GLOBAL_SUM.def_impl(lambda part: part)
GLOBAL_SUM.def_abstract_eval(lambda part: part)
mlir.register_lowering(GLOBAL_SUM, lambda _, part: [part])


def is_global_sum(equation: JaxprEqn) -> bool:
    """Whether the equation completes a sum over rows."""
    return equation.primitive is GLOBAL_SUM
