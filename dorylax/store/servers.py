"""Records of the servers of a pipeline, and servers.jsonl with a line of strict JSON per server and epoch.

No result depends on the file. A run that continues from a checkpoint cuts it back to the epochs before, so no epoch is in it
twice. docs/run-directory.md documents the fields. Lines of schema 1 have a digest each.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from dorylax.errors import RunWarning
from dorylax.store.lines import append_lines, read_lines, sync_lines, write_lines
from dorylax.store.run_directory import RunDirectoryError, damaged_file

SCHEMA = 2
_REMEDY = "it cannot be written again, and nothing is computed from it"


@final
@dataclasses.dataclass(frozen=True)
class GraphServerMetrics:
    """The work of a graph server for its intervals in an epoch, whenever it was done.

    Attributes:
        epoch: Number of the epoch.
        server: Number of the server.
        graph_threads: Maximum number of concurrent graph tasks.
        graph_tasks: Number of graph tasks.
        graph_seconds: Busy time of all graph threads together.
        graph_queue_mean: Mean length of the queue for a graph thread at the arrival of a task, which counts itself.
        graph_queue_max: Maximum length of that queue.
        tensor_tasks: Number of answered tensor tasks.
        tensor_seconds: Total duration of the calls that answered them.
        tensor_calls_mean: Mean number of tensor tasks that run or wait for a slot at the arrival of one, itself included.
        tensor_calls_max: Maximum of that number.
        gate_seconds: Total time that its intervals waited before the epoch.
        rows_seconds: Total time that they waited for rows and sums of other intervals.
        weights_seconds: Total time that they waited for their weights.
        messages: Number of messages to other graph servers.
        message_bytes: Bytes of these messages.
        rows_by_lag: See `Counters.rows_by_lag`.
        calls: Number of calls of tensor tasks by `Outcome`.
    """

    kind: ClassVar[str] = "graph"

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
    """The work of a parameter server in an epoch.

    Attributes:
        epoch: Number of the epoch.
        server: Number of the server.
        pulls: Number of answered pulls of weights.
        pulls_held: Number of pulls that gave the newest weights and demanded exact rows, because the stability gate was
            closed.
        pushes: Number of received parts of gradients.
        updates: Number of optimizer steps.
        busy_seconds: Time to compute gradients, steps and predictions.
        bytes_received: Bytes of the pushes.
        bytes_sent: Bytes of pulled weights, and of gradients and updates for other parameter servers.
        stashes_max: Maximum number of intervals that held a version of the weights at a time.
    """

    kind: ClassVar[str] = "parameter"

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


@final
@dataclasses.dataclass(frozen=True)
class Loss:
    """Servers in other processes that were lost together, or during the recovery from a loss.

    Attributes:
        generation: Number of the generation that follows; losses begin one, and so do moves of servers between two epochs.
        servers: Servers of the lost processes: "graph server 1", say.
        causes: Reasons why these processes count as lost, each once.
        epoch: First epoch trained afterwards.
        repeats: Whether that epoch had begun before the loss.
        wasted_seconds: Time from the end of the previous epoch to the detection of the loss; 0 without repetition.
        recovery_seconds: Time from the detection until all servers run again.
    """

    generation: int
    servers: list[str]
    causes: list[str]
    epoch: int
    repeats: bool
    wasted_seconds: float
    recovery_seconds: float


_KINDS = {record.kind: record for record in (GraphServerMetrics, ParameterServerMetrics)}


def to_dict(one: ServerMetrics) -> dict[str, Any]:
    """Return the fields and the kind as JSON values."""
    return {"kind": one.kind, **dataclasses.asdict(one)}


def from_dict(fields: Mapping[str, Any]) -> ServerMetrics:
    """Invert `to_dict`.

    Raises:
        ValueError: The kind is unknown.
        TypeError: A field is missing or unknown.
    """
    given = dict(fields)
    kind = given.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"kind must be graph or parameter, got {kind!r}")
    return _KINDS[kind](**given)


@final
class ServersWriter:
    """Writer of servers.jsonl.

    Args:
        path: The file.
        epochs: Number of finished epochs, to which an existing file is cut back. If the file is damaged or lacks some of
            them, it is emptied, with a RunWarning.
    """

    def __init__(self, path: Path, epochs: int) -> None:
        self._path = path
        if not path.exists():
            return
        found: list[ServerMetrics] = []
        try:
            found = read(path)
            if found and found[-1].epoch < epochs - 1:
                raise damaged_file(path, f"it has no line of epoch {epochs - 1}", _REMEDY)
        except RunDirectoryError as error:
            if error.refused:
                raise
            found = []
            warnings.warn(f"{error}. It begins anew with epoch {epochs}", RunWarning, stacklevel=2)
        write_lines(path, SCHEMA, (to_dict(one) for one in found if one.epoch < epochs))

    def write(self, servers: Sequence[ServerMetrics]) -> None:
        """Append the lines of an epoch."""
        if servers:
            append_lines(self._path, SCHEMA, map(to_dict, servers))

    def sync(self) -> None:
        """Flush the lines to disk."""
        if self._path.exists():
            sync_lines(self._path)


def read(path: Path) -> list[ServerMetrics]:
    """Return the records of all whole epochs, in order; each epoch has the same servers.

    Raises:
        RunDirectoryError: The file cannot be read, is damaged, lacks a line, or has a newer schema.
    """
    found = read_lines(path, SCHEMA, from_dict, remedy=_REMEDY)
    lines = [(one.epoch, f"{one.kind} server {one.server}") for one in found]
    servers: list[str] = []  # of the first epoch
    for epoch, name in lines:
        if epoch != lines[0][0] or name in servers:
            break
        servers.append(name)
    for number, (epoch, name) in enumerate(lines):
        later, place = divmod(number, len(servers))
        due = lines[0][0] + later, servers[place]
        if (epoch, name) != due:
            wrong = f"line {number + 1}: it is of {name} in epoch {epoch}, not {due[1]} in epoch {due[0]}"
            raise damaged_file(path, wrong, _REMEDY)
    return found[: len(found) - len(found) % max(1, len(servers))]
