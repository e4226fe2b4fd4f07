"""A visit: one interval in one epoch, and the values that belong to it alone."""

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
        interval: its number on its server.
        number: its number in the whole graph.
        epoch: of the interval; -1 for what is computed once.
        version: of the weights that it has pulled; -1 before training.
        ahead: by how many versions the weights are predicted beyond it.
        exact: whether it must read rows of its own epoch (`Pulled.exact`).
        weights: their leaves.
        free: values without rows: parameters of one version, keys, constants.
        constants: the interval's rows that stay the same from epoch to epoch.
        values: what its steps have written so far and later steps read.
        copies: rows of neighbours as its forward pass has read them, by number of the publication.
        pending: messages on their way.
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
        """Where something is done for it, for errors and logs."""
        when = f"epoch {self.epoch}" if self.epoch >= 0 else "before training"
        return f"graph server {server}, interval {self.number}, {when}, {what}"

    def value(self, var: Var) -> Any:
        """A value that a step reads."""
        for place in (self.values, self.constants):
            if var in place:
                return place[var]
        return self.free[var]
