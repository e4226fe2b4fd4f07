"""State of a run that changes while it trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.config.schema import TrainConfig
from dorylax.program.model.base import Tree
from dorylax.runs.result import EpochRecord, Timings, best_epoch, improves
from dorylax.store.arrays import Part, PartsWriter
from dorylax.store.run_directory import RunDirectoryError


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Carried:
    """State of a runner that it needs, in addition to the `LoopState`, to continue bit for bit.

    Attributes:
        arrays: Name → NumPy array.
        record: JSON values.
        parts: By name, parts that other processes have written and will read; or a writer that has them written when the
            state is saved.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]
    parts: Mapping[str, Part] | PartsWriter = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass
class LoopState:
    """State of a run between two epochs.

    Attributes:
        params: Current parameters, on the device.
        opt_state: State of the optimizer.
        state: The model's other carried state.
        history: Records of the epochs so far.
        best: Record of the best epoch so far; None before any evaluation.
        best_params: Copies of `params` on the host after the best regularly evaluated epoch; the initial ones before any.
        best_state: Copies of `state` on the host after that epoch.
        best_is_last: Whether the best epoch is the last one and was evaluated only for that reason. Its parameters are then
            `params`, while `best_params` still hold the best of the regular evaluations, for a run that continues.
        timings: Seconds so far, over all processes of the run.
        diverged: Whether the last step gave NaN or infinity; such a state can be inspected but not trained.
        carried: The runner's additional state when this state was saved; None if it had none.
        report: The summary's report on the epochs when this state was saved; None if there was none.
    """

    params: Tree
    opt_state: Tree
    state: Tree
    best_params: Tree
    best_state: Tree
    history: list[EpochRecord] = dataclasses.field(default_factory=list)
    best: EpochRecord | None = None
    best_is_last: bool = False
    timings: Timings = dataclasses.field(default_factory=Timings)
    diverged: bool = False
    carried: Carried | None = None
    report: dict[str, Any] | None = None

    @property
    def epochs(self) -> int:
        """Number of finished epochs, which is also the number of the next epoch."""
        return len(self.history)

    @property
    def chosen(self) -> tuple[Tree, Tree]:
        """Parameters and carried state of the best epoch; before any evaluation the current ones, if finite."""
        unjudged = self.best is None and not self.diverged
        current = unjudged or self.best_is_last
        return (self.params, self.state) if current else (self.best_params, self.best_state)

    def copy(self) -> LoopState:
        """Return the same state in new arrays, which training may donate."""
        current = (self.params, self.opt_state, self.state)
        params, opt_state, state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), current)
        history = list(self.history)
        return dataclasses.replace(self, params=params, opt_state=opt_state, state=state, history=history)

    def add(self, record: EpochRecord, *, regular: bool = True) -> None:
        """Append an epoch whose update is already in `params`, and keep a copy if it is the best so far.

        Args:
            record: Record of the epoch.
            regular: False if it is evaluated only because it is the last.
        """
        self.history.append(record)
        if improves(record, self.best):
            self.best, self.best_is_last = record, not regular
            if regular:
                self.best_params, self.best_state = to_host(self.params), to_host(self.state)

    def go_on(self, train: TrainConfig) -> None:
        """Turn a restored state into the state that a run with these settings has after as many epochs.

        If the run continues past its former last epoch, the evaluation of that epoch is dropped, unless it is regular.

        Raises:
            RunDirectoryError: The settings end the run earlier, or right after an epoch that lacks its final evaluation.
        """
        if self.epochs > train.epochs:
            raise RunDirectoryError(
                f"train.epochs is {train.epochs}, but {self.epochs} epochs of this run are trained already: "
                f"give {self.epochs} or more, or choose another run directory"
            )
        if not self.history or (last := self.history[-1]).evaluated == train.evaluates(last.epoch):
            return
        if not last.evaluated:
            raise RunDirectoryError(
                f"train.epochs is {train.epochs}, but the run has reached that without the evaluation that ends a run: "
                f"give {self.epochs + 1} or more, or choose another run directory"
            )
        self.history[-1] = last.unevaluated()
        number = best_epoch(self.history)
        self.best, self.best_is_last = None if number is None else self.history[number], False

    def spend(self, what: str, seconds: float) -> None:
        """Add to one of the timings."""
        self.timings = dataclasses.replace(self.timings, **{what: getattr(self.timings, what) + seconds})


def to_host(tree: Tree) -> Tree:
    """Copy to the host; views would break, because the next step donates their buffers."""
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else np.array(leaf), tree)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key, which NumPy cannot hold."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
