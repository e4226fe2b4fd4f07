"""servers.jsonl: what each server of a pipeline did in each epoch, a line of strict JSON per server and epoch.

Nothing is computed from it. A run that goes on from a checkpoint cuts the file back to the epochs before, so none is in it
twice. docs/run-directory.md says what each number means.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from dorylax.store.digest import DigestError, sealed, unsealed
from dorylax.store.durable import sync_file
from dorylax.store.run_directory import (
    DamagedFileError,
    RunDirectoryAccessError,
    RunDirectoryError,
    RunDirectoryWarning,
    append_text,
    write_text,
)

SCHEMA = 1


@final
@dataclasses.dataclass(frozen=True)
class GraphServerMetrics:
    """A graph server in an epoch: all that was done for its intervals in this epoch, whenever that was.

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
        pulls_held: of these, such as waited because gradients oscillated, or were too few to tell.
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
_Server = tuple[str, int]  # kind, number


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


@final
class ServersWriter:
    """Writes servers.jsonl.

    Args:
        path: the file.
        epochs: that are finished: the file, if there is one, is cut back to them. Where it lacks some of them, or is
            damaged, it begins with the epochs to come.

    Warns:
        RunDirectoryWarning: it was damaged.

    Raises:
        RunDirectoryAccessError: the file system refuses.
    """

    def __init__(self, path: Path, epochs: int) -> None:
        self._path = path
        if not path.exists():
            return
        kept: list[str] = []
        try:
            lines = _lines(path)
            kept = [text + "\n" for text, one in lines if one.epoch < epochs]
            if lines and lines[-1][1].epoch < epochs - 1:
                raise _damaged(path, f"it has no line of epoch {epochs - 1}")
        except RunDirectoryAccessError:
            raise
        except RunDirectoryError as error:
            kept = []
            warnings.warn(f"{error}. It begins anew with epoch {epochs}", RunDirectoryWarning, stacklevel=2)
        write_text(path, "".join(kept))

    def write(self, servers: Sequence[ServerMetrics]) -> None:
        """Appends the lines of an epoch, and hands them to the operating system.

        Raises:
            RunDirectoryAccessError: the file system refuses, a full disk, say.
        """
        if not servers:
            return
        lines = [json.dumps(sealed({"schema": SCHEMA, **to_dict(one)}), allow_nan=False) + "\n" for one in servers]
        append_text(self._path, "".join(lines))

    def sync(self) -> None:
        """Puts the lines on disk.

        Raises:
            RunDirectoryAccessError: the file system refuses.
        """
        if not self._path.exists():
            return
        try:
            sync_file(self._path)
        except OSError as error:
            raise RunDirectoryAccessError(f"{self._path} cannot be written: {error}") from error


def read(path: Path) -> list[ServerMetrics]:
    """All lines, in order: epoch by epoch, of each the same servers.

    A last line without its newline (the process was killed while writing) is left out, and so is what such a process has
    written of its last epoch.

    Raises:
        RunDirectoryError: unreadable, a damaged line, a line missing, or a newer schema; names the line.
    """
    return [one for _, one in _lines(path)]


def _lines(path: Path) -> list[tuple[str, ServerMetrics]]:
    """Each line of whole epochs with what it says."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunDirectoryAccessError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise _damaged(path, error) from error
    found: list[tuple[str, ServerMetrics]] = []
    servers: list[_Server] = []  # of the first epoch
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            fields = unsealed(json.loads(line), without=0)
            schema = fields.pop("schema")
            if schema > SCHEMA:
                raise RunDirectoryError(
                    f"{path}, line {number}, has schema {schema}, this version of dorylax reads up to {SCHEMA}: "
                    "update dorylax"
                )
            one, server = from_dict(fields), (fields["kind"], fields["server"])
            if not found or (one.epoch == found[0][1].epoch and server not in servers):
                servers.append(server)
            else:
                epoch, place = divmod(len(found), len(servers))
                due = (found[0][1].epoch + epoch, servers[place])
                if (one.epoch, server) != due:
                    raise DigestError(f"it is of {_named(one.epoch, server)}, not {_named(*due)}")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise _damaged(path, f"line {number}: {error}") from error
        found.append((line, one))
    return found[: len(found) - len(found) % len(servers)] if servers else []


def _damaged(path: Path, reason: object) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is damaged ({reason}): it cannot be written again, and nothing is computed from it"
    )


def _named(epoch: int, server: _Server) -> str:
    return f"{server[0]} server {server[1]} in epoch {epoch}"
