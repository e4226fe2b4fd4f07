"""As much of Weights & Biases as docs/observers.md uses, which keeps what it is told."""

from __future__ import annotations

import types
from typing import Any


class Run:
    """What `wandb.init` gives."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.closed = settings, False
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.summary: dict[str, Any] = {}
        self.config = types.SimpleNamespace(update=self._update)
        self.updates: dict[str, Any] = {}

    def _update(self, values: dict[str, Any], *, allow_val_change: bool = False) -> None:
        assert allow_val_change or not values.keys() & self.updates.keys()
        self.updates.update(values)

    def log(self, values: dict[str, Any], *, step: int) -> None:
        """Keeps the values of a step; steps only grow."""
        assert not self.logged or step > self.logged[-1][0]
        self.logged.append((step, values))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def module() -> Any:
    """A stand-in for the module; `runs` are those that were begun."""
    wandb: Any = types.ModuleType("wandb")
    wandb.runs = []

    def init(*, mode: str, **settings: Any) -> Run:
        assert mode == "offline"
        wandb.runs.append(Run(settings))
        run: Run = wandb.runs[-1]
        return run

    wandb.init = init
    return wandb
