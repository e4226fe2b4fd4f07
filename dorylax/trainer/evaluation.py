"""How good a run's parameters are: one exact forward without dropout, compiled once, outside training time."""

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
    """Evaluates one run, here, on the whole data set.

    Args:
        functions: of the run's model.
        forward: how outputs are computed.
        kept: what training keeps on the device.
        arrays: the data set on the device.
        streams: the model's random streams.
        loop: a state like those that will be evaluated; the time it takes to compile is charged to it.
        only_here: arrays that nothing reads between two evaluations; those that are memory-mapped are then given back.
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
    """Judges versions, wherever they are evaluated.

    Args:
        objective: what is reported.
        evaluate: computes it.
        counts: how many vertices each of the three masks has.

    Attributes:
        metric: what it gives.
    """

    def __init__(self, objective: Objective, evaluate: Evaluate, counts: Sequence[int]) -> None:
        self.metric = objective.metric
        self._score, self._evaluate, self._counts = objective.score, evaluate, counts

    def __call__(self, params: Tree, state: Tree) -> list[float | None] | None:
        """The metric on the three masks, None where one is empty.

        Returns:
            Those; None instead where an output is NaN, or a number is not finite.
        """
        sums, nan = self._evaluate(params, state)
        scores = [self._score(sums, mask) if count else None for mask, count in enumerate(self._counts)]
        if nan or not all(math.isfinite(score) for score in scores if score is not None):
            return None
        return scores
