"""How long to train, and when to evaluate, save and stop: validated numbers and pure decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

from dorylax.config.schema import SEED_LIMIT
from dorylax.pipeline.config import PipelineConfig
from dorylax.runs.result import EpochRecord, Stopped
from dorylax.serverless.config import TensorConfig

# Settings that change no number of an epoch that is trained already: a run may be continued with others. An order of
# vertices that does change numbers is part of what checkpoints compare.
_FREE = frozenset(
    {
        "train.epochs",
        "train.target_accuracy",
        "train.patience",
        "train.checkpoint_every",
        "single.order",
        "single.memory",
    }
)
# Where and how many tasks run at a time; in virtual time that is the cluster's speed.
_FREE_ON_THE_REAL_CLOCK = frozenset(
    {"pipeline.graph_threads"} | {f"tensor.{field.name}" for field in dataclasses.fields(TensorConfig)}
) - {"tensor.backend", "tensor.streaming"}  # with which sums are formed otherwise


def free_settings(pipeline: PipelineConfig | None) -> frozenset[str]:
    """The dotted settings that may change when a run is continued."""
    return _FREE | _FREE_ON_THE_REAL_CLOCK if pipeline is not None and pipeline.clock == "real" else _FREE


@final
@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The `train.*` settings; see `Trainer` for their meaning.

    Raises:
        ValueError: a value out of range.
    """

    epochs: int = 200
    seed: int = 0
    eval_every: int = 1
    target_accuracy: float | None = None
    patience: int | None = None
    checkpoint_every: int = 0
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("seed", 0), ("eval_every", 1), ("patience", 1)):
            _at_least(name, getattr(self, name), least)
        _at_least("checkpoint_every", self.checkpoint_every, 0)
        _at_least("keep_checkpoints", self.keep_checkpoints, 1)
        if self.seed >= SEED_LIMIT:
            raise ValueError(f"train.seed must be < {SEED_LIMIT}, got {self.seed}")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise ValueError(f"train.target_accuracy must be a fraction in (0, 1], got {self.target_accuracy}")

    def evaluates(self, epoch: int) -> bool:
        """Whether epoch (from 0) ends with an evaluation: every `eval_every` epochs, and the last."""
        return self.evaluates_regularly(epoch) or epoch + 1 == self.epochs

    def evaluates_regularly(self, epoch: int) -> bool:
        """Whether epoch (from 0) would end with an evaluation also if it were not the last."""
        return (epoch + 1) % self.eval_every == 0

    def saves(self, epoch: int) -> bool:
        """Whether a checkpoint is due after epoch (from 0)."""
        return self.checkpoint_every > 0 and (epoch + 1) % self.checkpoint_every == 0

    def stop_reason(self, history: Sequence[EpochRecord], best: int | None) -> Stopped | None:
        """Why training is over after these epochs, of which `best` is the best so far; None while it is not."""
        if best is not None and history[best].validated:
            value = history[best].val_accuracy
            if self.target_accuracy is not None and value is not None and value >= self.target_accuracy:
                return "target"
            if self.patience is not None and history[-1].evaluated and history[-1].epoch - best >= self.patience:
                return "patience"
        return "epochs" if len(history) >= self.epochs else None


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"train.{name} must be an integer ≥ {least}, got {value!r}")
    if value < least:
        raise ValueError(f"train.{name} must be ≥ {least}, got {value}")
