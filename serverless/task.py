"""A tensor task: one stage on the rows of one interval, or on a chunk of its edges."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, final

from dorylax.errors import DorylaxError


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


class OperandSource(NamedTuple):
    """Where an operand comes from, and how its rows lie.

    Attributes:
        source: "rows" of the interval; "weights", a leaf of the parameters of the task's version; "free", anything else
            without rows.
        axis: of rows: along which axis they lie.
        factor: of rows: entries of that axis for each row.
        zero: of rows: padding must be 0, as cotangents of padding are; otherwise it repeats the last real row, since a
            derivative could be NaN at rows of zeros.
        leaf: of weights: the number of the leaf.
    """

    source: Literal["rows", "free", "weights"]
    axis: int = 0
    factor: int = 1
    zero: bool = False
    leaf: int = 0


class ResultTarget(NamedTuple):
    """Where a result goes, and how its rows lie.

    Attributes:
        target: "rows" to the graph server; "sums" over rows (gradients of weights) to the parameter server; "free", which
            does not depend on the rows, to the graph server.
        axis, factor: of rows: as in `OperandSource`.
    """

    target: Literal["rows", "sums", "free"]
    axis: int = 0
    factor: int = 1


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TensorTask:
    """One call of a stage.

    Attributes:
        key: which one.
        server: the graph server that asks for it.
        version: of the weights among its operands; -1 if there are none.
        weights: all leaves of the parameters of that version, in the order that `OperandSource.leaf` counts.
        operands: what the stage reads, in order; of rows `count`, or `size` if they are padded already.
        sources: of each operand.
        targets: of each result.
        count: rows that are real; 0 if a stage of edges is called only for values without rows.
        size: rows of every call of the stage; operands are padded to it.
        flops: operations, an estimate.
        bytes_in: bytes that travel to the worker, parameters included.
        bytes_out: bytes that travel back, gradients included.
        ahead: how many versions the weights are predicted beyond `version`; 0 for that version itself.
        row_bytes_in: of `bytes_in`, those of rows.
        requests: transfers that a worker asks for.
        elementwise: of `flops`, those that are not of products of matrices.
        effort: operations and bytes of the call with its padding, an estimate; None: nobody knows.
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
    """In how many calls of the stage a task is computed.

    Args:
        task: any.
        streaming: in two, on half of the rows each, where there are more than half.

    Returns:
        Rows of each call, and how many of them are real.
    """
    if not streaming:
        return task.size, (task.count,)
    half = task.size - task.size // 2
    return half, (half, task.count - half) if task.count > half else (task.count,)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TensorResult:
    """What a task gives.

    Attributes:
        values: what the stage writes, in order, NumPy arrays; of rows the first `count` are real.
        start, end: when it ran, in the clock's seconds.
    """

    values: tuple[Any, ...]
    start: float
    end: float


@final
class TaskFailedError(DorylaxError):
    """A worker died, or its answer was lost; the task may run again.

    Attributes:
        throttled: Whether the task did not start, since too many calls run. A later retry may succeed.
    """

    def __init__(self, text: str, *, throttled: bool = False) -> None:
        super().__init__(text)
        self.throttled = throttled
