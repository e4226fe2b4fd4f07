"""What must hold in every run, whatever is lost: watched where it happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, final

from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.records import Pair
from dorylax.pipeline.parameters.sequencer import Sequencer
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.recorder import Recorder, lag_of


class BrokenError(AssertionError):
    """An invariant does not hold."""


@final
class Invariants:
    """Watches everything in this process.

    - Each gradient is in one step of a version's history, through all generations, or late.
    - The steps that led to a version are as many as its number says.
    - An interval computes an epoch, forward and backward, with the weights that its gradient is finished with.
    - Rows that are read are at most S + 1 epochs old, in synchronous epochs of the epoch itself.
    - As long as the driver holds an epoch, nobody of its generation pulls weights for it or a later one.

    Args:
        staleness: S; None in synchronous training.
        generation: of the driver, now.

    Attributes:
        held: the epochs that the driver holds: from when it has asked for that until it lets them begin.
    """

    def __init__(self, staleness: int | None, generation: Callable[[], int]) -> None:
        self._staleness, self._generation = staleness, generation
        self.held: set[int] = set()
        self._steps: dict[tuple[int, int], tuple[Pair, ...]] = {}  # (sequencer, version)
        self._history: dict[int, tuple[Any, frozenset[Pair]]] = {}  # by the identity of a version's parameters
        self._visits: dict[tuple[int, int, int], tuple[int, int]] = {}  # (client, interval, epoch) -> version
        self._sums: dict[int, tuple[Any, tuple[int, int] | None]] = {}
        self._firsts: dict[int, int] = {}  # of parameter servers that have a sequencer: it
        self._kept: list[Any] = []  # all that is known by its identity, which is nobody else's as long as it is there

    def contained(self, params: Any) -> frozenset[Pair]:
        """The gradients in a version."""
        found = self._history.get(id(params))
        return frozenset() if found is None else found[1]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches."""
        wrapped: list[tuple[type, str, Any]] = []

        def wrap(kind: type, name: str, around: Callable[..., Any]) -> None:
            inner = getattr(kind, name)
            wrapped.append((kind, name, inner))
            setattr(kind, name, lambda *given, **named: around(inner, *given, **named))

        wrap(ParameterServers, "__init__", self._servers_made)
        wrap(Sequencer, "_number", self._numbered)
        wrap(ParameterServer, "advance", self._advanced)
        wrap(ParameterServer, "push", self._pushed)
        wrap(GraphServer, "push", self._pushes)
        wrap(ParameterClient, "push", self._sent)
        wrap(ParameterClient, "pull", self._pulls)
        wrap(Recorder, "read", self._read)
        try:
            yield
        finally:
            for kind, name, inner in reversed(wrapped):
                setattr(kind, name, inner)

    # Gradients and versions.

    def _servers_made(self, inner: Any, servers: Any, start: Any, *given: Any, **named: Any) -> None:
        inner(servers, start, *given, **named)
        newest = servers.newest()
        self._history[id(newest.params)] = newest.params, self.contained(start.params)
        if 0 in servers._here:
            self._firsts[id(servers._endpoints[0].server)] = id(servers._sequencer)
            self._kept.append((servers._endpoints[0].server, servers._sequencer))

    def _numbered(self, inner: Any, sequencer: Any, step: Any) -> Any:
        numbered = inner(sequencer, step)
        self._steps[id(sequencer), numbered[0].number] = step.pairs
        return numbered

    def _advanced(self, inner: Any, server: Any, state: Any) -> None:
        before = server.state
        inner(server, state)
        if id(server) not in self._firsts:
            return
        pairs = self._steps[self._firsts[id(server)], state.version]
        earlier = self.contained(before.params)
        if twice := earlier & set(pairs):
            raise BrokenError(f"version {state.version} has the gradients {sorted(twice)} for the second time")
        self._history[id(state.params)] = state.params, earlier | set(pairs)

    # Weights.

    async def _pulls(self, inner: Any, client: Any, interval: int, epoch: int) -> Any:
        held = min(self.held, default=epoch + 1)
        if client._transport.generation == self._generation() and epoch >= held:
            raise BrokenError(f"interval {interval} starts epoch {epoch}, while {held} is held")
        return await inner(client, interval, epoch)

    async def _pushes(self, inner: Any, server: Any, step: Any, visit: Any) -> None:
        self._visits[id(server.parameters), visit.number, visit.epoch] = visit.version, visit.ahead
        self._kept.append(server.parameters)
        await inner(server, step, visit)

    def _sent(self, inner: Any, client: Any, *given: Any, **named: Any) -> None:
        interval, epoch, _, sums = given
        self._sums[id(sums)] = sums, self._visits.get((id(client), interval, epoch))
        inner(client, *given, **named)

    def _pushed(self, inner: Any, server: Any, push: Any) -> Any:
        whole = inner(server, push)
        if whole is not None:
            pulled = whole[0].version, whole[0].ahead
            for sums in whole[1].values():
                if id(sums) in self._sums and self._sums[id(sums)][1] != pulled:
                    raise BrokenError(
                        f"interval {push.interval} computed epoch {push.epoch} with version {self._sums[id(sums)][1]}, and "
                        f"it is finished with {pulled}"
                    )
        return whole

    # Rows.

    def _read(self, inner: Any, recorder: Any, server: int, visit: Any, found: Any) -> None:
        most = 0 if self._staleness is None else self._staleness + 1
        lags = [int(lag) for lag, rows in lag_of(visit.epoch, found).items() if rows]
        if lags and (max(lags) > most or (self._staleness is None and min(lags) < 0)):
            raise BrokenError(f"interval {visit.number} reads rows {max(lags)} epochs old in epoch {visit.epoch}")
        inner(recorder, server, visit, found)
