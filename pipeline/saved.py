"""State in addition to the weights that a run needs to resume bit for bit: rows in buffers, and their epochs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np

from dorylax.cost.machines import WarmPool
from dorylax.errors import RunError
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.parameters.records import ServerState
from dorylax.program.model.base import Tree
from dorylax.store.arrays import Part, PartsWriter, read_part, write_part
from dorylax.store.places import open_storage

_PARAMETERS = "parameter servers/"
_REMEMBERED, _STABILITY = f"{_PARAMETERS}remembered", f"{_PARAMETERS}stability"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Saved:
    """State of a pipeline between two epochs, with all intervals stopped.

    Attributes:
        arrays: Named buffers and their epochs; empty if the next epoch is synchronous.
        parts: Buffers of graph servers in other processes, keyed by server name; each server reads its part. Before saving,
            the writer of the parts in those processes.
        record: JSON values: "version" of the weights; "clock" in seconds; "counters"; "synchronous", whether an asynchronous
            run has switched to synchronous epochs; "controllers" of the graph servers; "servers", the counts of each server
            for the next epoch, by kind; "losses" of `PipelineRun`.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]
    parts: Mapping[str, Part] | PartsWriter = dataclasses.field(default_factory=dict)

    @property
    def holds_buffers(self) -> bool:
        """Whether buffers are saved; if not, the next epoch is synchronous."""
        return bool(self.parts) or any(not name.startswith(_PARAMETERS) for name in self.arrays)


class InitialState(NamedTuple):
    """Initial state of the parameter servers.

    Attributes:
        params: Parameters of the model.
        opt_state: State of the optimizer; None for a new one.
        state: Other state of the model.
        saved: Saved state of a resumed run; None for a new run.
        epoch: First epoch to train.
        due: Epoch of each interval's first gradient that the version lacks (`Sequencer`); None for `epoch` everywhere.
    """

    params: Tree
    opt_state: Tree
    state: Tree
    saved: Saved | None
    epoch: int
    due: Sequence[int] | None = None


def save_buffers(servers: Sequence[GraphServer]) -> dict[str, np.ndarray]:
    """Return named copies of all buffers that change between epochs."""
    return {name: array.copy() for name, array in _named(servers)}


def restore_buffers(saved: Saved, servers: Sequence[GraphServer]) -> None:
    """Restore the buffers of graph servers.

    Raises:
        ValueError: The saved pipeline has other servers or intervals, or another model.
    """
    if not saved.arrays:
        return
    named = dict(_named(servers))
    there = {name for name in saved.arrays if not name.startswith(_PARAMETERS)}
    if named.keys() != there:
        differing = sorted(named.keys() ^ there)
        raise ValueError(f"the checkpoint is of another pipeline: {', '.join(differing[:3])} are in one of them only")
    for name, array in named.items():
        if array.shape != saved.arrays[name].shape or array.dtype != saved.arrays[name].dtype:
            raise ValueError(
                f"the checkpoint is of another pipeline: {name} is {saved.arrays[name].dtype}"
                f"{list(saved.arrays[name].shape)} there, {array.dtype}{list(array.shape)} here"
            )
    for name, array in named.items():
        array[...] = saved.arrays[name]
    for server in servers:
        for stamps in (
            *(buffer.stamps for _, buffer in server.changing_buffers()),
            *(merge.stamps for merge in server.merges.values()),
            *(parts.stamps for parts in server.changing_parts().values()),
        ):
            stamps.changed(len(stamps.epochs))


def part_name(server: int) -> str:
    """Return the name of the checkpoint part with a graph server's buffers, the prefix of their names."""
    return f"server {server}"


def save_known(newest: ServerState) -> dict[str, np.ndarray]:
    """Return the state of parameter servers except weights: weight prediction and stability gate."""
    trees = {_REMEMBERED: newest.remembered, _STABILITY: newest.stability}
    return {
        f"{name} {k}": np.asarray(leaf) for name, tree in trees.items() for k, leaf in enumerate(jax.tree.leaves(tree))
    }


def remembered(saved: Saved) -> list[np.ndarray] | None:
    """Return the leaves of `ServerState.remembered`, or None if empty."""
    return _leaves(saved, _REMEMBERED)


def stability(saved: Saved) -> list[np.ndarray] | None:
    """Return the leaves of `ServerState.stability`, or None if empty."""
    return _leaves(saved, _STABILITY)


def save_controller(server: GraphServer) -> dict[str, Any]:
    """Return a server's measurements of its tensor tasks as JSON values: durations, slots and placement.

    On a virtual cluster with cold starts, the result includes the warm functions.
    """
    hedging, autotuner = server.controller.hedging, server.autotuner
    found: dict[str, Any] = {
        "hedging": None if hedging is None else hedging.state(),
        "autotuner": None if autotuner is None else list(autotuner.state()),
    }
    if (placement := server.placement.state()) is not None:
        found["placement"] = placement
    if (environments := _environments(server)) is not None:
        found["environments"] = environments.state()
    return found


def restore_controller(server: GraphServer, record: dict[str, Any]) -> None:
    """Restore a result of `save_controller`, except entries that the server no longer uses."""
    hedging, autotuner = server.controller.hedging, server.autotuner
    if hedging is not None and record.get("hedging") is not None:  # earlier versions stored a mean
        hedging.restore(record["hedging"])
    if autotuner is not None and record["autotuner"] is not None:
        autotuner.restore(record["autotuner"])
        server.controller.limit.set(autotuner.limit)
    if server.placement.state() is not None and "placement" in record:
        server.placement.restore(record["placement"])
    if (environments := _environments(server)) is not None and "environments" in record:
        environments.restore(record["environments"])


def _environments(server: GraphServer) -> WarmPool | None:
    times = server.context.times
    return None if times is None or times.machines is None else times.machines.environments(server.shard.server)


def _leaves(saved: Saved, name: str) -> list[np.ndarray] | None:
    count = sum(key.startswith(f"{name} ") for key in saved.arrays)
    return [saved.arrays[f"{name} {k}"] for k in range(count)] or None


def _named(servers: Sequence[GraphServer]) -> Iterator[tuple[str, np.ndarray]]:
    for server in servers:
        where = part_name(server.shard.server)
        for number, buffer in server.changing_buffers():
            yield f"{where}/rows {number}", buffer.rows
            yield f"{where}/epochs {number}", buffer.stamps.epochs
            yield f"{where}/times {number}", buffer.times
        for number, merge in server.merges.items():
            yield f"{where}/sums {number}", merge.rows
            yield f"{where}/sums {number} epochs", merge.own_epochs
            yield f"{where}/sums {number} received", merge.received_epochs
            yield f"{where}/sums {number} shipped", merge.shipped
            yield f"{where}/sums {number} times", merge.times
        for number, parts in server.changing_parts().items():
            for place, rows in enumerate(parts.rows):
                yield f"{where}/parts {number} {place}", rows
            yield f"{where}/parts {number} epochs", parts.stamps.epochs


def write_buffers(server: GraphServer, place: str) -> Part | str:
    """Write the buffers of a paused server; return the part, or the reason of a failure."""
    try:
        return write_part(place, part_name(server.shard.server), save_buffers([server]))
    except (OSError, RunError) as error:
        return str(error)


def read_buffers(part: Part) -> dict[str, np.ndarray]:
    """Return the buffers of a server by name.

    Raises:
        RunError: The part is damaged or unreadable.
    """
    try:
        return read_part(part)
    except (OSError, RunError) as error:
        raise RunError(
            f"checkpoint {part.place} cannot be used ({error}): delete it to go on from the one before"
        ) from error


def seen(place: str, name: str) -> str:
    """Return the content of the driver's trial file, or the reason of a failure."""
    try:
        with contextlib.closing(open_storage(place)) as storage:
            return storage.read(name).decode("utf-8", "replace")
    except (OSError, RunError) as error:
        return str(error)
