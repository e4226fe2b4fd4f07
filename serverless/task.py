"""A tensor task: one stage on the rows of one interval, or on a chunk of its edges."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, final


class TaskKey(NamedTuple):
    """Which task it is; equal keys are repetitions of one task, and compute the same.

    Attributes:
        epoch: of the interval.
        interval: its number in the whole graph.
        stage: the number of the task in the program.
        chunk: which chunk of the interval's edges; 0 for vertices.
    """

    epoch: int
    interval: int
    stage: int
    chunk: int


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TensorTask:
    """One call of a stage.

    Attributes:
        key: which one.
        server: the graph server that asks for it.
        operands: what the stage reads, in order; rows are padded to the stage's fixed number.
        flops: operations, an estimate.
        bytes_in: that travel to the worker, parameters included.
        bytes_out: that travel back, gradients included.
    """

    key: TaskKey
    server: int
    operands: tuple[Any, ...]
    flops: int
    bytes_in: int
    bytes_out: int


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TensorResult:
    """What a task gives.

    Attributes:
        values: what the stage writes, in order, NumPy arrays.
        start, end: when it ran, in the clock's seconds.
    """

    values: tuple[Any, ...]
    start: float
    end: float


class TaskFailedError(Exception):
    """A worker died, or its answer was lost: the task may be run again."""
