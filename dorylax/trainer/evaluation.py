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
from dorylax.trainer.step.arrays import TrainingArrays
from dorylax.trainer.step.forward import Forward
from dorylax.trainer.step.functions import StepFunctions


@final
class Evaluation:
    """Evaluates one run.

    Args:
        functions: of the run's model.
        forward: how outputs are computed.
        kept: what training keeps on the device.
        arrays: the data set on the device.
        streams: the model's random streams.
        loop: a state like those that will be evaluated; the time it takes to compile is charged to it.
        only_here: arrays that nothing reads between two evaluations; those that are memory-mapped are then given back.

    Attributes:
        metric: what it gives.
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
        self.metric = functions.objective.metric
        self._score = functions.objective.score
        self._only_here = only_here
        self._inputs = (streams, forward.kept_of(kept), arrays)
        self._not_empty = [bool(np.asarray(mask).any()) for mask in arrays.masks]
        self._evaluate, seconds = functions.evaluation(forward).prepare(loop.params, loop.state, self._inputs)
        loop.spend("compile", seconds)

    def __call__(self, params: Tree, state: Tree) -> list[float | None] | None:
        """The metric on the three masks, None where one is empty.

        Returns:
            Those; None instead where an output is NaN, or a number is not finite.
        """
        result: Any = self._evaluate(params, state, self._inputs)
        sums, nan = jax.device_get(result)
        release(*self._only_here)
        scores = [self._score(row) if some else None for row, some in zip(sums, self._not_empty, strict=True)]
        if nan or not all(math.isfinite(score) for score in scores if score is not None):
            return None
        return scores
