"""Runs one epoch with any runner: train, check, evaluate if due, and record."""

from __future__ import annotations

import math
import time

from dorylax.config.schema import TrainConfig
from dorylax.runs.metric import METRICS
from dorylax.runs.result import EpochRecord, TrainingError
from dorylax.trainer.evaluation import Evaluation
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.runners.base import EpochRunner

_WHAT_TO_TRY = (
    "Try a lower optimizer.learning_rate, data.row_normalise=true or optax.clip_by_global_norm; on one machine "
    "JAX_DEBUG_NANS=1 in the environment, or jax.config.update('jax_debug_nans', True) before fit(), names the line that "
    "makes the first NaN"
)


def run_epoch(runner: EpochRunner, evaluation: Evaluation, train: TrainConfig, loop: LoopState) -> EpochRecord:
    """Run the next epoch and add it to the state.

    Raises:
        TrainingError: The loss is NaN or infinite, or, after the update, an output is NaN or the loss of an evaluation is
            not finite. The state is then marked as diverged, and its history lacks the epoch.
    """
    epoch = loop.epochs
    loss, seconds, dollars = runner.run(loop)
    loop.spend("train", seconds)
    if not math.isfinite(loss):
        loop.diverged = True
        raise TrainingError(f"the training loss is {loss} in epoch {epoch}. {_WHAT_TO_TRY}")
    scores: list[float | None] | None = [None, None, None]
    if train.evaluates(epoch):
        begin = time.perf_counter()
        scores = evaluation(loop.params, loop.state)
        loop.spend("evaluate", time.perf_counter() - begin)
    if scores is None:
        loop.diverged = True
        title = METRICS[evaluation.metric].title
        counted = evaluation.metric in ("accuracy", "micro_f1", "macro_f1")
        what = "outputs are NaN" if counted else f"{title} is not finite or outputs are NaN"
        raise TrainingError(f"the model's {what} after the update of epoch {epoch}. {_WHAT_TO_TRY}")
    record = EpochRecord.judged(epoch, loss, scores, evaluation.metric, seconds=seconds, dollars=dollars)
    loop.add(record, regular=train.evaluates_regularly(epoch))
    return record
