"""dorylax on one machine, by a `Trainer`, as users run it, until a recorder has enough."""

from __future__ import annotations

from typing import Any, final

import optax
from flax import nnx

from dorylax.layers import GCN, GraphSAGE
from dorylax.runs.result import EpochRecord, TrainResult
from dorylax.trainer import Trainer
from dorylax.trainer.one_machine import SingleRunner
from sides.problem import Problem
from sides.recorder import HIDDEN, Recorder, Settings

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
        found: Any = (record.val_accuracy, record.test_accuracy)
        self._recorder.judge(record.epoch + 1, lambda: found)
        if self._recorder.enough:
            raise _EnoughError

    def finished(self, result: TrainResult) -> None:
        """See `Observer`."""


def train(problem: Problem, settings: Settings, seed: int, limit: float) -> dict[str, Any]:
    """A run. Its set-up is the order of vertices, the compiler, and computations that are the same in every epoch."""
    recorder, run = Recorder(limit), SingleRunner.run

    def timed(self: SingleRunner, loop: Any) -> Any:
        with recorder.training():
            return run(self, loop)

    data = problem.dataset()
    layers = {"gcn": GCN, "sage": GraphSAGE}[settings["model"]]
    model = layers(data.num_features, HIDDEN, data.num_classes, dropout=settings["dropout"], rngs=nnx.Rngs(seed))
    optimizer = optax.chain(optax.add_decayed_weights(settings["weight_decay"]), optax.adam(settings["learning_rate"]))
    trainer = Trainer(model, data, optimizer=optimizer, epochs=_NEVER, seed=seed, observers=[_Watcher(recorder)])
    SingleRunner.run = timed  # type: ignore[method-assign]  # an observer is not told when an epoch begins
    try:
        trainer.fit()
    except _EnoughError:
        pass
    finally:
        SingleRunner.run = run  # type: ignore[method-assign]
    return recorder.record()
