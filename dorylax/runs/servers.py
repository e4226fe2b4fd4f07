"""Records of the servers of a pipeline, one per server and epoch; `dorylax.store.servers` keeps them in a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final


@final
@dataclasses.dataclass(frozen=True)
class GraphServerMetrics:
    """A graph server in an epoch: all work for its intervals in this epoch, whenever it was done.

    Attributes:
        epoch, server: which.
        graph_threads: how many graph tasks it runs at a time.
        graph_tasks: how many ran.
        graph_seconds: that its threads were busy with them, of all threads together.
        graph_queue_mean: tasks that waited for a thread when one came, itself included; on average over all that came.
        graph_queue_max: the most.
        tensor_tasks: how many were answered.
        tensor_seconds: from the beginning to the end of each call that answered one, together.
        tensor_calls_mean: tensor tasks that were under way or waited for a slot when one came, itself included; on average.
        tensor_calls_max: the most.
        gate_seconds: that its intervals waited before the epoch, together.
        rows_seconds: that they waited for rows and sums of others, together.
        weights_seconds: that they waited for their weights to come, together.
        messages: sent to other graph servers.
        message_bytes: likewise.
        rows_by_lag: see `Counters.rows_by_lag`.
        calls: of tensor tasks, by what became of them (`Outcome`).
    """

    epoch: int
    server: int
    graph_threads: int
    graph_tasks: int
    graph_seconds: float
    graph_queue_mean: float
    graph_queue_max: int
    tensor_tasks: int
    tensor_seconds: float
    tensor_calls_mean: float
    tensor_calls_max: int
    gate_seconds: float
    rows_seconds: float
    weights_seconds: float
    messages: int
    message_bytes: int
    rows_by_lag: dict[str, int]
    calls: dict[str, int]


@final
@dataclasses.dataclass(frozen=True)
class ParameterServerMetrics:
    """A parameter server in an epoch.

    Attributes:
        epoch, server: which.
        pulls: of weights, that were answered.
        pulls_held: pulls that gave the newest weights and demanded exact rows, because the stability gate was closed.
        pushes: of parts of gradients.
        updates: optimizer steps.
        busy_seconds: that it computed gradients, steps and predictions.
        bytes_received: of the pushes.
        bytes_sent: of the weights pulled, and of gradients and updates to other parameter servers.
        stashes_max: the most intervals that held a version at a time.
    """

    epoch: int
    server: int
    pulls: int
    pulls_held: int
    pushes: int
    updates: int
    busy_seconds: float
    bytes_received: int
    bytes_sent: int
    stashes_max: int


ServerMetrics = GraphServerMetrics | ParameterServerMetrics
_KINDS: dict[str, type[GraphServerMetrics] | type[ParameterServerMetrics]] = {
    "graph": GraphServerMetrics,
    "parameter": ParameterServerMetrics,
}


def to_dict(one: ServerMetrics) -> dict[str, Any]:
    """The fields and their kind, as JSON may carry them."""
    (kind,) = (kind for kind, made in _KINDS.items() if isinstance(one, made))
    return {"kind": kind, **dataclasses.asdict(one)}


def from_dict(fields: Mapping[str, Any]) -> ServerMetrics:
    """Inverse of `to_dict`.

    Raises:
        ValueError: an unknown kind, a missing or an unknown field.
    """
    kind, given = fields.get("kind"), {name: value for name, value in fields.items() if name != "kind"}
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    names = {field.name for field in dataclasses.fields(_KINDS[kind])}
    if given.keys() != names:
        raise ValueError(f"the line of a {kind} server has the fields {sorted(names)}, got {sorted(given)}")
    return _KINDS[kind](**given)
