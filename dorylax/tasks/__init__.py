"""Training tasks of a model: the contract in `base`, a file for each task, and their names in configurations.

from dorylax.tasks import LinkPrediction
Trainer(model, data, task=LinkPrediction(), optimizer=…)
"""

from __future__ import annotations

from typing import Any

from dorylax.config.tasks import SPECS, TaskConfig
from dorylax.tasks.base import Task
from dorylax.tasks.graphs import GraphPrediction
from dorylax.tasks.links import LinkPrediction
from dorylax.tasks.vertices import Labelled, VertexPrediction

__all__ = ["GraphPrediction", "LinkPrediction", "Task", "VertexPrediction"]


def make_task(config: TaskConfig, split_seed: int = 0) -> Task:
    """Make the task of a configuration.

    Args:
        config: Configuration of the task.
        split_seed: Seed of the split of links.
    """
    if config.name is None:
        return VertexPrediction()
    given = config.to_dict()
    options: dict[str, Any] = {
        name: usual if given[name] is None else given[name] for name, usual in SPECS[config.name].options.items()
    }
    of: Labelled = "targets" if config.name.endswith("regression") else "classes"
    if config.name.startswith("vertex"):
        return VertexPrediction(of)
    if config.name.startswith("graph"):
        return GraphPrediction(options["readout"], of)
    redrawn = options.pop("negatives") == "epoch"
    return LinkPrediction(split_seed, redrawn=redrawn, **options)
