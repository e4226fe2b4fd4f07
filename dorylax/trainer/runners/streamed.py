"""Trains epochs on one machine with too little memory, over units of rows."""

from __future__ import annotations

import time
from typing import final

import numpy as np

from dorylax.program.model.base import Tree
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.runners.base import EpochRunner, Evaluate, RanEpoch
from dorylax.trainer.step.arrays import TrainingArrays
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.streamed import StreamedRun


@final
class StreamedRunner(EpochRunner):
    """Runs each epoch in sweeps over the rows.

    Args:
        functions: Step functions of the run's model and optimizer.
        run: The streamed run.
        streams: The model's random streams.
        seed: Seed of the run.
    """

    def __init__(self, functions: StepFunctions, run: StreamedRun, streams: Tree, *, seed: int) -> None:
        self._functions, self._run, self._streams, self._seed = functions, run, streams, seed

    @property
    def passes(self) -> tuple[str, ...] | None:
        """See `EpochRunner`."""
        return self._run.passes

    @property
    def evaluate(self) -> Evaluate | None:
        """Streamed evaluation."""
        return self._run.evaluate

    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:  # noqa: ARG002
        """Compute the values that are the same in every epoch."""
        begin = time.perf_counter()
        _ = self._run.training
        loop.spend("train", time.perf_counter() - begin)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`."""
        begin = time.perf_counter()
        carry = (loop.params, loop.opt_state, loop.state)
        found = self._run.training.step(loop.params, self._streams, loop.state, seed=self._seed, epoch=loop.epochs)
        loss = np.asarray(found.loss)
        update, _ = self._functions.update.prepare(carry, loss, found.gradients, found.state)
        loop.params, loop.opt_state, loop.state = update(carry, loss, found.gradients, found.state)
        return RanEpoch(float(loss), time.perf_counter() - begin)

    def close(self) -> None:
        """Release files, memory and threads."""
        self._run.close()
