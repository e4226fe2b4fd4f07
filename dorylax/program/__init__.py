"""From an ordinary model to graph tasks and jitted tensor stages.

`trace` turns a model into a `Program`; `optimise` applies passes to it. Public names are imported when first used, so
that a worker that only loads stage files (`dorylax.program.artefact.stage_file`) never imports Flax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylax.program.jaxpr.errors import SplitError
    from dorylax.program.model.loss import cross_entropy
    from dorylax.program.passes import PASSES, optimise
    from dorylax.program.program import Program, trace
    from dorylax.program.tracing.spec import DataSpec, RowSpec

_HOMES = {
    "PASSES": "passes",
    "DataSpec": "tracing.spec",
    "cross_entropy": "model.loss",
    "Program": "program",
    "RowSpec": "tracing.spec",
    "SplitError": "jaxpr.errors",
    "optimise": "passes",
    "trace": "program",
}

__all__ = [
    "PASSES",
    "DataSpec",
    "Program",
    "RowSpec",
    "SplitError",
    "cross_entropy",
    "optimise",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
