"""Training on one machine or with a pipeline: `Trainer`, its results, and the observer interface.

Names load on first use, so that reading a run's records (`dorylax.store.metrics`) does not import Flax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "EpochRecord": "dorylax.runs.result",
    "Observer": "dorylax.observers.base",
    "Timings": "dorylax.runs.result",
    "TrainResult": "dorylax.runs.result",
    "Trainer": "dorylax.trainer.trainer",
    "TrainingError": "dorylax.runs.result",
    "prepare_data": "dorylax.trainer.from_config",
}

if TYPE_CHECKING:
    from dorylax.observers.base import Observer
    from dorylax.runs.result import EpochRecord, Timings, TrainingError, TrainResult
    from dorylax.trainer.from_config import prepare_data
    from dorylax.trainer.trainer import Trainer

__all__ = ["EpochRecord", "Observer", "Timings", "TrainResult", "Trainer", "TrainingError", "prepare_data"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'dorylax.trainer' has no attribute {name!r}")
