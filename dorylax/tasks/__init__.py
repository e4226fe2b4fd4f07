"""Training tasks of a model: the contract in `base`, a file for each task, and their names in `catalogue`.

from dorylax.tasks import LinkPrediction
Trainer(model, data, task=LinkPrediction(), optimizer=…)
"""

from dorylax.tasks.base import Task
from dorylax.tasks.graphs import GraphPrediction
from dorylax.tasks.links import LinkPrediction
from dorylax.tasks.vertices import VertexPrediction

__all__ = ["GraphPrediction", "LinkPrediction", "Task", "VertexPrediction"]
