"""`IntervalPass`: one interval in one epoch, with its private values."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any, final

from dorylax.jax_internals import Var


@final
class Pending:
    """Counts operations in progress. At most one coroutine may wait at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._nothing: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Record the start of an operation."""
        self._count += 1

    def end(self) -> None:
        """Record the end of an operation."""
        self._count -= 1
        if not self._count and self._nothing is not None and not self._nothing.done():
            self._nothing.set_result(None)

    async def nothing(self) -> None:
        """Wait until no operation is in progress."""
        while self._count:
            self._nothing = asyncio.get_running_loop().create_future()
            await self._nothing


@final
@dataclasses.dataclass(eq=False)
class IntervalPass:
    """One interval in one epoch.

    Attributes:
        interval: Number of the interval on its server.
        number: Number of the interval in the whole graph.
        epoch: Epoch of the pass; -1 before training.
        version: Version of the pulled weights; -1 before training.
        ahead: Number of versions by which the weights are predicted beyond `version`.
        exact: Whether the pass must read rows of the current epoch (`Pulled.exact`).
        weights: Leaves of the weights.
        free: Values without rows: parameters of one version, keys, constants.
        constants: Rows of the interval that are the same in every epoch.
        values: Results of the steps so far that later steps read.
        copies: Rows of neighbors as read by the forward pass, by number of the publication.
        pending: Messages in flight.
    """

    interval: int
    number: int
    epoch: int
    version: int
    weights: tuple[Any, ...]
    free: Mapping[Var, Any]
    constants: dict[Var, Any]
    values: dict[Var, Any] = dataclasses.field(default_factory=dict)
    copies: dict[int, Any] = dataclasses.field(default_factory=dict)
    pending: Pending = dataclasses.field(default_factory=Pending)
    ahead: int = 0
    exact: bool = False

    def place(self, server: int, what: str) -> str:
        """Return a description of the pass and of the activity `what`, for errors and logs."""
        when = f"epoch {self.epoch}" if self.epoch >= 0 else "before training"
        return f"graph server {server}, interval {self.number}, {when}, {what}"

    def value(self, var: Var) -> Any:
        """Return a value that a step reads."""
        for place in (self.values, self.constants):
            if var in place:
                return place[var]
        return self.free[var]
