"""One rule per primitive, in families; importing this package registers them all.

All graph operators share one rule, which reads their records.
"""

from __future__ import annotations

from dorylax.ops.primitives.operator import OPERATORS
from dorylax.program.rows.rules import (
    calls,
    control,
    elementwise,
    indexing,
    layout,
    linear_algebra,
    products,
    random,
    reductions,
    scattering,
    windows,
)
from dorylax.program.rows.rules.base import RULES, Operation, Rule, Scope, shape_of
from dorylax.program.rows.rules.graph import graph_operator

__all__ = [
    "RULES",
    "Operation",
    "Rule",
    "Scope",
    "calls",
    "control",
    "elementwise",
    "indexing",
    "layout",
    "linear_algebra",
    "products",
    "random",
    "reductions",
    "rule_of",
    "scattering",
    "shape_of",
    "windows",
]


def rule_of(primitive: str) -> Rule | None:
    """The rule of the primitive of this name; None if there is none."""
    return graph_operator if primitive in OPERATORS else RULES.get(primitive)
