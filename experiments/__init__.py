"""Experiments: sweeps over configurations, their tables and reports, and the script that runs them (`experiments/run.py`).

`load` gives a sweep's runs as a pandas frame. Importing this package loads neither pandas nor JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylax.experiments.table import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from dorylax.experiments.table import load

        return load
    raise AttributeError(f"module 'dorylax.experiments' has no attribute {name!r}")
