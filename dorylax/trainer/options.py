"""What follows from the settings of training: what a continued run may change, and when a run is over."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.config.schema import TrainConfig
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.config import RayConfig
from dorylax.runs.metric import METRICS
from dorylax.runs.result import EpochRecord, Stopped
from dorylax.serverless.config import TensorConfig

# Settings that change no number of an epoch that is trained already: a run may be continued with others. An order of
# vertices that does change numbers is part of what checkpoints compare.
_FREE = frozenset(
    {
        "data.verify",
        "train.epochs",
        "train.target_accuracy",
        "train.target",
        "train.patience",
        "train.checkpoint_every",
        "train.checkpoints",
        "train.recipe",
        "single.order",
        "single.memory",
        "single.memory_limit",
        "single.scratch",
        "pipeline.trace",
    }
)
# Where and how many tasks run at a time; in virtual time that is the cluster's speed. Two change how sums are formed.
_FREE_ON_THE_REAL_CLOCK = {"pipeline.hosts", "pipeline.num_hosts", "pipeline.graph_threads"} | (
    {*map(TensorConfig.key, TensorConfig.options()), *map(RayConfig.key, RayConfig.options())}
    - {"tensor.backend", "tensor.streaming"}
)


def free_settings(pipeline: PipelineConfig | None) -> frozenset[str]:
    """The dotted settings that may change when a run is continued."""
    return _FREE | _FREE_ON_THE_REAL_CLOCK if pipeline is not None and pipeline.clock == "real" else _FREE


def stop_reason(train: TrainConfig, history: Sequence[EpochRecord], best: int | None) -> Stopped | None:
    """Why training is over after these epochs, of which `best` is the best so far; None while it is not."""
    if best is not None and history[best].validated:
        value, judge = history[best].score("val"), METRICS[history[best].judge]
        if train.goal is not None and value is not None and judge.reaches(value, train.goal):
            return "target"
        if train.patience is not None and history[-1].evaluated and history[-1].epoch - best >= train.patience:
            return "patience"
    return "epochs" if len(history) >= train.epochs else None
