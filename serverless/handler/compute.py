"""Computes a task: pads the operands, calls the stage, joins the results of the parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.program.artefact.stage_file import Stage
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget, joined, pad
from dorylax.serverless.wire.event import Event


class Inputs(NamedTuple):
    """Fetched operands of one part of the rows.

    Attributes:
        real: Number of real rows of the part.
        rows: Operands with rows, in order, each with `real` or `event.size` rows.
        free: Operands without rows except weights, in order.
        weights: All leaves of the parameters; empty if no operand is a weight.
    """

    real: int
    rows: Sequence[Any]
    free: Sequence[Any]
    weights: Sequence[Any]


def compute_part(event: Event, stage: Stage, inputs: Inputs) -> list[np.ndarray]:
    """Call the stage on one part of the rows.

    Args:
        event: The task.
        stage: Compiled artefact of the stage.
        inputs: Operands of the part.

    Returns:
        Computed results of the stage in order, with `event.size` rows.

    Raises:
        ValueError: The operands do not match the event or the stage.
    """
    values = _operands(event.operands, event.size, inputs)
    return [np.asarray(value) for value in event.reference.call(stage, values, event.size)]


def _operands(sources: Sequence[OperandSource], size: int, inputs: Inputs) -> list[Any]:
    rows, free = iter(inputs.rows), iter(inputs.free)
    values = []
    for place, source in enumerate(sources):
        if source.source == "rows":
            value = _next(rows, "rows", place)
            _check_rows(value, source, place, inputs.real, size)
            value = pad(value, source.axis, source.factor, inputs.real, size, zero=source.zero)
        elif source.source == "free":
            value = _next(free, "free", place)
        elif source.leaf < len(inputs.weights):
            value = inputs.weights[source.leaf]
        else:
            raise ValueError(f"operand {place} is leaf {source.leaf} of the weights, got {len(inputs.weights)} leaves")
        values.append(value)
    for kind, rest in (("rows", rows), ("free", free)):
        if left := len(list(rest)):
            raise ValueError(f"{left} arrays too many came for the operands of {kind!r}")
    return values


def _next(values: Iterator[Any], kind: str, place: int) -> Any:
    for value in values:
        return value
    raise ValueError(f"operand {place} is one of {kind!r}, and too few of these came")


def _check_rows(value: Any, source: OperandSource, place: int, count: int, size: int) -> None:
    wanted = {count * source.factor, size * source.factor}
    if value.ndim <= source.axis or value.shape[source.axis] not in wanted:
        raise ValueError(
            f"operand {place} must have {' or '.join(map(str, sorted(wanted)))} entries along axis {source.axis}, "
            f"for {count} rows padded to {size}, got shape {list(value.shape)}"
        )


@final
class Results:
    """Joins the results of a task's parts.

    Args:
        targets: Target of each result.
    """

    def __init__(self, targets: Sequence[ResultTarget]) -> None:
        self._targets = tuple(targets)
        self._parts: list[Sequence[np.ndarray]] = []
        self._counts: list[int] = []

    def add(self, values: Sequence[np.ndarray], count: int) -> None:
        """Add the results of the next part.

        Args:
            values: Results in order.
            count: Number of real rows in the part.

        Raises:
            ValueError: The numbers of values and targets differ.
        """
        if len(values) != len(self._targets):
            raise ValueError(
                f"the stage must write {len(self._targets)} values, one for each target, got {len(values)}"
            )
        self._parts.append(values)
        self._counts.append(count)

    def of_graph_server(self) -> list[np.ndarray]:
        """Return the rows of all parts and the values without rows, in order."""
        return self._joined("rows", "free")

    def of_parameter_server(self) -> list[np.ndarray]:
        """Return the sums over the rows of all parts, in order."""
        return self._joined("sums")

    def _joined(self, *kinds: str) -> list[np.ndarray]:
        chosen = [place for place, target in enumerate(self._targets) if target.target in kinds]
        parts = [[part[place] for place in chosen] for part in self._parts]
        return joined([self._targets[place] for place in chosen], parts, self._counts)
