"""A visit: one interval in one epoch, with its private values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

from dorylax.jax_internals import Var
from dorylax.pipeline.pending import Pending


@final
@dataclasses.dataclass(eq=False)
class Visit:
    """One interval in one epoch.

    Attributes:
        interval: Number of the interval on its server.
        number: Number of the interval in the whole graph.
        epoch: Epoch of the visit; -1 before training.
        version: Version of the pulled weights; -1 before training.
        ahead: Number of versions by which the weights are predicted beyond `version`.
        exact: Whether the visit must read rows of the current epoch (`Pulled.exact`).
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
        """Return a description of the visit and of the activity `what`, for errors and logs."""
        when = f"epoch {self.epoch}" if self.epoch >= 0 else "before training"
        return f"graph server {server}, interval {self.number}, {when}, {what}"

    def value(self, var: Var) -> Any:
        """Return a value that a step reads."""
        for place in (self.values, self.constants):
            if var in place:
                return place[var]
        return self.free[var]
