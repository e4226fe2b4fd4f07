"""Tensor tasks: one call of a stage on the rows of an interval or on a chunk of its edges."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, final

from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget


class TaskKey(NamedTuple):
    """Identity of a task. Tasks with equal keys compute the same values.

    Attributes:
        epoch: Epoch of the interval.
        interval: Global index of the interval.
        stage: Index of the stage in the program.
        chunk: Index of the chunk of the interval's edges; 0 for vertices.
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
        key: Key of the task.
        server: Index of the requesting graph server.
        version: Version of the weights among the operands; -1 without weights.
        weights: All leaves of the parameters of that version, indexed by `OperandSource.leaf`.
        operands: Operands of the stage, in order. Row operands have `count` rows, or `size` if already padded.
        sources: Source of each operand.
        targets: Destination of each result.
        count: Number of real rows; 0 if an edge stage is called only for values without rows.
        size: Padded number of rows, the same for every call of the stage.
        flops: Estimated number of operations.
        bytes_in: Bytes sent to the worker, including parameters.
        bytes_out: Bytes returned by the worker, including gradients.
        ahead: Number of versions beyond `version` for which the weights are predicted; 0 for `version` itself.
        row_bytes_in: Part of `bytes_in` for rows.
        requests: Number of transfers requested by the worker.
        elementwise: Part of `flops` outside matrix products.
        effort: Estimated operations and bytes of the call, including padding, or None if unknown.
    """

    key: TaskKey
    server: int
    version: int
    weights: tuple[Any, ...]
    operands: tuple[Any, ...]
    sources: tuple[OperandSource, ...]
    targets: tuple[ResultTarget, ...]
    count: int
    size: int
    flops: int
    bytes_in: int
    bytes_out: int
    ahead: int = 0
    row_bytes_in: int = 0
    requests: int = 0
    elementwise: int = 0
    effort: int | None = None


def parts_of(task: TensorTask, *, streaming: bool) -> tuple[int, tuple[int, ...]]:
    """Divide a task into calls of its stage.

    Args:
        task: Task to divide.
        streaming: Whether to make two calls of half the size, if the real rows exceed one half.

    Returns:
        Padded number of rows per call, and the number of real rows in each call.
    """
    if not streaming:
        return task.size, (task.count,)
    half = task.size - task.size // 2
    return half, (half, task.count - half) if task.count > half else (task.count,)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TensorResult:
    """Result of a task.

    Attributes:
        values: NumPy arrays written by the stage, in order. In row results, the first `count` rows are real.
        start: Start time on the clock in seconds.
        end: End time on the clock in seconds.
    """

    values: tuple[Any, ...]
    start: float
    end: float
