"""dorylax on one machine, by a `Trainer`, as users run it."""

from __future__ import annotations

from typing import Any, final

import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.layers import GCN, GraphSAGE
from dorylax.runs.result import EpochRecord, TrainResult
from dorylax.trainer import Trainer
from dorylax.trainer.runners.single import SingleRunner
from sides.to_accuracy.recorder import Recorder, SetUp, run_record
from sides.to_accuracy.settings import HIDDEN, Settings
from sides.to_accuracy.task import Task

_NEVER = 2**31 - 1  # epochs: the recorder ends the run


class _EnoughError(Exception):
    """Ends a run."""


@final
class _Watcher:
    """Observer that hands accuracies to a recorder, and ends the run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def started(self, total_epochs: int, first_epoch: int) -> None:
        """See `Observer`."""

    def epoch(self, record: EpochRecord) -> None:
        """See `Observer`."""
        assert record.val_accuracy is not None
        assert record.test_accuracy is not None
        found = (record.val_accuracy, record.test_accuracy)
        self._recorder.judge(record.epoch + 1, lambda: found)
        if self._recorder.enough:
            raise _EnoughError

    def finished(self, result: TrainResult) -> None:
        """See `Observer`."""


def train(task: Task, settings: Settings, seed: int, limit: float) -> dict[str, Any]:
    """A run.

    Its set-up is all until the first epoch begins: the order of vertices, the compiler, what is the same in every epoch.
    """
    recorder, set_up = Recorder(limit), SetUp()
    spent: dict[str, float] = {}
    run = SingleRunner.run

    def timed(self: SingleRunner, loop: Any) -> Any:
        if not spent:
            spent.update(set_up.over())
        with recorder.training():
            return run(self, loop)

    graph = Graph.from_csr(task.offsets, task.neighbours)
    masks = (task.train_mask, task.val_mask, task.test_mask)
    data = Dataset("task", graph, task.features, task.labels, task.num_classes, *masks)
    layers = {"gcn": GCN, "sage": GraphSAGE}[settings["model"]]
    widths = (data.num_features, HIDDEN, task.num_classes)
    model = layers(*widths, dropout=settings["dropout"], rngs=nnx.Rngs(seed))
    optimizer = optax.chain(optax.add_decayed_weights(settings["weight_decay"]), optax.adam(settings["learning_rate"]))
    trainer = Trainer(model, data, optimizer=optimizer, epochs=_NEVER, seed=seed, observers=[_Watcher(recorder)])
    SingleRunner.run = timed  # type: ignore[method-assign]  # an observer is not told when an epoch begins
    try:
        trainer.fit()
    except _EnoughError:
        pass
    finally:
        SingleRunner.run = run  # type: ignore[method-assign]
    return run_record(spent, recorder)
