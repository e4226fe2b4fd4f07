"""One epoch after the other: the compiled step and evaluation applied to a run's state, timed and checked."""

from __future__ import annotations

import math
import time
from typing import Any, final

import jax
import numpy as np

from dorylax.program.loss import micro_f1
from dorylax.program.model.base import Tree
from dorylax.trainer.arrays import EpochInputs, TrainingArrays
from dorylax.trainer.gradient import Gradient
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.options import TrainOptions
from dorylax.trainer.result import EpochRecord, TrainingError
from dorylax.trainer.step import StepFunctions

_WHAT_TO_TRY = (
    "Try a lower optimizer.learning_rate, data.row_normalise=true or optax.clip_by_global_norm; "
    "jax.config.update('jax_debug_nans', True) finds the operation"
)


@final
class EpochRunner:
    """Compiles for one run, computes what is the same in every epoch, and then runs the epochs.

    Args:
        functions: of the run's model and optimizer.
        gradient: how loss and gradients are computed.
        options: the run's options.
        arrays: the data set on the device.
        streams: the model's random streams.
        loop: the state that will be run; only its shapes matter here, and its timings are charged: "compile" for
            compilation, "train" for what is computed once.
    """

    def __init__(
        self,
        functions: StepFunctions,
        gradient: Gradient,
        options: TrainOptions,
        arrays: TrainingArrays,
        streams: Tree,
        *,
        loop: LoopState,
    ) -> None:
        self._options = options
        self._not_empty = [bool(np.asarray(mask).any()) for mask in arrays.masks]
        kept = gradient.keep(arrays)
        self._inputs = EpochInputs(streams, kept.arrays, arrays, np.uint32(options.seed), np.uint32(0))
        self._step, step_seconds = functions.step(gradient).prepare(
            (loop.params, loop.opt_state, loop.state), self._inputs
        )
        self._evaluate, evaluate_seconds = functions.evaluate.prepare(loop.params, loop.state, streams, arrays)
        loop.spend("compile", kept.compile_seconds + step_seconds + evaluate_seconds)
        loop.spend("train", kept.seconds)

    def run(self, loop: LoopState) -> EpochRecord:
        """Runs the next epoch and adds it to the state.

        Raises:
            TrainingError: the loss is NaN or infinite, or an output is NaN after the update; the state is then marked
                as diverged, and the epoch is not in its history.
        """
        epoch = loop.epochs
        begin = time.perf_counter()
        carry = (loop.params, loop.opt_state, loop.state)
        carry, device_loss = self._step(carry, self._inputs._replace(epoch=np.uint32(epoch)))
        loop.params, loop.opt_state, loop.state = carry
        loss = float(device_loss)  # waits for the whole step
        seconds = time.perf_counter() - begin
        loop.spend("train", seconds)
        if not math.isfinite(loss):
            loop.diverged = True
            raise TrainingError(f"the training loss is {loss} in epoch {epoch}. {_WHAT_TO_TRY}")
        train, val, test = None, None, None
        if self._options.evaluates(epoch):
            begin = time.perf_counter()
            train, val, test = self._accuracies(loop, epoch)
            loop.spend("evaluate", time.perf_counter() - begin)
        record = EpochRecord(epoch, loss, train, val, test, seconds)
        loop.add(record, regular=self._options.evaluates_regularly(epoch))
        return record

    def _accuracies(self, loop: LoopState, epoch: int) -> list[float | None]:
        result: Any = self._evaluate(loop.params, loop.state, self._inputs.streams, self._inputs.arrays)
        counts, nan = jax.device_get(result)
        if nan:
            loop.diverged = True
            raise TrainingError(f"the model's outputs are NaN after the update of epoch {epoch}. {_WHAT_TO_TRY}")
        return [micro_f1(row) if some else None for row, some in zip(counts, self._not_empty, strict=True)]
