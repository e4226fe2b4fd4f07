"""One rule per primitive, in families; importing this package registers them all."""

from __future__ import annotations

from dorylax.program.rows.rules import (
    calls,
    control,
    elementwise,
    graph,
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

__all__ = [
    "RULES",
    "Operation",
    "Rule",
    "Scope",
    "calls",
    "control",
    "elementwise",
    "graph",
    "indexing",
    "layout",
    "linear_algebra",
    "products",
    "random",
    "reductions",
    "scattering",
    "shape_of",
    "windows",
]
