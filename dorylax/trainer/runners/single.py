"""Trains epochs on one machine with one compiled step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, final

import jax
import numpy as np

from dorylax.program.model.base import Tree
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.runners.base import EpochRunner, RanEpoch
from dorylax.trainer.step.compiled import EpochInputs, TrainingArrays
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.gradient import Gradient


@final
class SingleRunner(EpochRunner):
    """Runs each epoch as one jitted function.

    Args:
        functions: Step functions of the run's model and optimizer.
        gradient: Gradient function.
        streams: The model's random streams.
        seed: Seed of the run.
        trace_seconds: Seconds spent on tracing the gradient, to be added to the timings.
        redraw: Returns the model inputs that change in an epoch, as name → array.
    """

    def __init__(
        self,
        functions: StepFunctions,
        gradient: Gradient,
        streams: Tree,
        *,
        seed: int,
        trace_seconds: float,
        redraw: Callable[[int], Mapping[str, np.ndarray]],
    ) -> None:
        self._functions = functions
        self._gradient = gradient
        self._streams = streams
        self._seed = seed
        self._trace_seconds = trace_seconds
        self._redraw = redraw
        self._step: Any = None
        self._inputs: Any = None

    @property
    def passes(self) -> tuple[str, ...] | None:
        """See `EpochRunner`."""
        return self._gradient.passes

    @property
    def kept(self) -> tuple[Any, ...]:
        """See `EpochRunner`."""
        return () if self._inputs is None else self._inputs.kept

    @property
    def reads_features(self) -> bool:
        """False if epochs read only values computed once from the features."""
        return self._gradient.reads_features

    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:
        """Compile the step, and compute the values that are the same in every epoch."""
        assert arrays is not None
        kept = self._gradient.keep(arrays)
        self._inputs = EpochInputs(self._streams, kept.arrays, arrays, np.uint32(self._seed), np.uint32(0))
        carry = (loop.params, loop.opt_state, loop.state)
        self._step, step_seconds = self._functions.step(self._gradient).prepare(carry, self._inputs)
        loop.spend("compile", self._trace_seconds + kept.compile_seconds + step_seconds)
        loop.spend("train", kept.seconds)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`."""
        begin = time.perf_counter()
        carry = (loop.params, loop.opt_state, loop.state)
        inputs = self._inputs._replace(epoch=np.uint32(loop.epochs))
        if drawn := self._redraw(loop.epochs):
            inputs = inputs._replace(
                arrays=inputs.arrays._replace(named=inputs.arrays.named | jax.device_put(dict(drawn)))
            )
        carry, device_loss = self._step(carry, inputs)
        loop.params, loop.opt_state, loop.state = carry
        loss = float(device_loss)  # blocks until the whole step is done
        return RanEpoch(loss, time.perf_counter() - begin)
