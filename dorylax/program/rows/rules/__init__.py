"""One rule per primitive, in families; importing this package registers them all.

All graph operators share one rule, which reads their records.
"""

from __future__ import annotations

from dorylax.ops.primitives.operator import OPERATORS
from dorylax.program.rows.rules import control, elementwise, indexing, layout, products, reductions
from dorylax.program.rows.rules.base import RULES, Operation, Rule, Scope, shape_of

__all__ = [
    "RULES",
    "Operation",
    "Scope",
    "control",
    "elementwise",
    "indexing",
    "layout",
    "products",
    "reductions",
    "rule_of",
    "shape_of",
]


def rule_of(primitive: str) -> Rule | None:
    """The rule of the primitive of this name; None if there is none."""
    return products.graph_operator if primitive in OPERATORS else RULES.get(primitive)
