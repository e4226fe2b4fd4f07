"""Evaluation of a run's parameters by an exact forward pass without dropout, compiled once, outside training time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from dorylax.graph.mapped import release
from dorylax.program.model.base import Tree
from dorylax.trainer.loop_state import LoopState
from dorylax.trainer.runners.base import Evaluate
from dorylax.trainer.step.arrays import TrainingArrays
from dorylax.trainer.step.forward import Forward
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.step.objective import Objective


@final
class OneMachineEvaluation:
    """Evaluates one run on this machine, on the whole data set.

    Args:
        functions: Step functions of the run's model.
        forward: Forward pass that computes outputs.
        kept: Arrays that training keeps on the device.
        arrays: The data set on the device.
        streams: The model's random streams.
        loop: A state with the structure of those to evaluate; the compile time is added to its timings.
        only_here: Arrays that only evaluations read; the pages of memory-mapped ones are released after each evaluation.
    """

    def __init__(
        self,
        functions: StepFunctions,
        forward: Forward,
        kept: tuple[Any, ...],
        arrays: TrainingArrays,
        streams: Tree,
        *,
        loop: LoopState,
        only_here: Sequence[np.ndarray] = (),
    ) -> None:
        self._only_here = only_here
        self._inputs = (streams, forward.kept_of(kept), arrays)
        self._evaluate, seconds = functions.evaluation(forward).prepare(loop.params, loop.state, self._inputs)
        loop.spend("compile", seconds)

    def __call__(self, params: Tree, state: Tree) -> tuple[Any, bool]:
        """See `Evaluate`."""
        result: Any = self._evaluate(params, state, self._inputs)
        sums, nan = jax.device_get(result)
        release(*self._only_here)
        return sums, bool(nan)


@final
class Evaluation:
    """Computes the metric of an evaluation, wherever that runs.

    Args:
        objective: Loss and metric.
        evaluate: Evaluates parameters.
        counts: Numbers of vertices of the three masks.

    Attributes:
        metric: Name of the metric.
    """

    def __init__(self, objective: Objective, evaluate: Evaluate, counts: Sequence[int]) -> None:
        self.metric = objective.metric
        self._score, self._evaluate, self._counts = objective.score, evaluate, counts

    def __call__(self, params: Tree, state: Tree) -> list[float | None] | None:
        """Compute the metric on the three masks.

        Returns:
            The values, with None for an empty mask. None instead if an output is NaN or a value is not finite.
        """
        sums, nan = self._evaluate(params, state)
        scores = [self._score(sums, mask) if count else None for mask, count in enumerate(self._counts)]
        if nan or not all(math.isfinite(score) for score in scores if score is not None):
            return None
        return scores
