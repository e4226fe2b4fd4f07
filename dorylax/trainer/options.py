"""Consequences of the training settings: which of them a continued run may change, and when a run stops."""

from __future__ import annotations

from collections.abc import Sequence

from dorylax.config.schema import KEYS, TrainConfig
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.config import RayConfig
from dorylax.runs.metric import METRICS
from dorylax.runs.result import EpochRecord, Stopped
from dorylax.serverless.config import TensorConfig
from dorylax.settings.section import extra

# An order of vertices that changes numbers is compared separately, as part of the checkpoints.
_FREE = frozenset(key for key, field in KEYS.items() if extra(field, "continuable"))
# Settings for placing and scheduling tasks; in virtual time they determine the cluster's speed. Two affect how sums are
# formed.
_FREE_ON_THE_REAL_CLOCK = {"pipeline.hosts", "pipeline.num_hosts", "pipeline.graph_threads"} | (
    {*map(TensorConfig.key, TensorConfig.options()), *map(RayConfig.key, RayConfig.options())}
    - {"tensor.backend", "tensor.streaming"}
)


def free_settings(pipeline: PipelineConfig | None) -> frozenset[str]:
    """Return the dotted settings that a continued run may change."""
    return _FREE | _FREE_ON_THE_REAL_CLOCK if pipeline is not None and pipeline.clock == "real" else _FREE


def stop_reason(train: TrainConfig, history: Sequence[EpochRecord], best: int | None) -> Stopped | None:
    """Return the reason to stop after these epochs, of which `best` is the best; None to continue."""
    if best is not None and history[best].validated:
        value, judge = history[best].score("val"), METRICS[history[best].judge]
        if train.goal is not None and value is not None and judge.reaches(value, train.goal):
            return "target"
        if train.patience is not None and history[-1].evaluated and history[-1].epoch - best >= train.patience:
            return "patience"
    return "epochs" if len(history) >= train.epochs else None
