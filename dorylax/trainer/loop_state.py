"""What changes while a run trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.config.schema import TrainConfig
from dorylax.program.model.base import Tree
from dorylax.runs.directory import RunDirectoryError
from dorylax.runs.parts import Part, PartsWriter
from dorylax.runs.result import EpochRecord, Timings, best_epoch, improves


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Carried:
    """What a runner must find again to go on bit for bit, besides what the run's state holds.

    Attributes:
        arrays: name → NumPy array.
        record: JSON values.
        parts: by name, those that others have written and will read; or who has them written where the state is saved.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]
    parts: Mapping[str, Part] | PartsWriter = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass
class LoopState:
    """A run between two epochs.

    Attributes:
        params: current parameters, on the device.
        opt_state: the optimizer's state.
        state: the model's other carried state.
        history: the epochs so far.
        best: the record of the best epoch so far; None before any evaluation.
        best_params: copies, on the host, of `params` and
        best_state: of `state` after the best epoch that is evaluated however long the run is; those of the start before
            any such evaluation.
        best_is_last: the best epoch is the last, and is evaluated only because it is: its parameters are `params`, and
            a run of more epochs, which does not evaluate it, still has its own best in `best_params`.
        timings: seconds so far, over all processes of the run.
        diverged: the last step gave NaN or infinity; such a state can be looked at but not trained on.
        carried: what the runner had besides when this state was saved; None where it had nothing.
        report: what a summary would have said then about how the epochs were run; None where there was nothing to say.
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
        """How many epochs are finished; also the number of the next."""
        return len(self.history)

    @property
    def chosen(self) -> tuple[Tree, Tree]:
        """Parameters and carried state of the best epoch; before any evaluation the current ones, if finite."""
        unjudged = self.best is None and not self.diverged
        current = unjudged or self.best_is_last
        return (self.params, self.state) if current else (self.best_params, self.best_state)

    def copy(self) -> LoopState:
        """The same state in arrays of its own, which training may use up."""
        current = (self.params, self.opt_state, self.state)
        params, opt_state, state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), current)
        history = list(self.history)
        return dataclasses.replace(self, params=params, opt_state=opt_state, state=state, history=history)

    def add(self, record: EpochRecord, *, regular: bool = True) -> None:
        """Appends an epoch whose update is already in `params`, and keeps a copy if it is the best so far.

        Args:
            record: of the epoch.
            regular: False where it is evaluated only because it is the last.
        """
        self.history.append(record)
        if improves(record, self.best):
            self.best, self.best_is_last = record, not regular
            if regular:
                self.best_params, self.best_state = to_host(self.params), to_host(self.state)

    def go_on(self, train: TrainConfig) -> None:
        """Makes a restored state what it would be after as many epochs of a run with these settings.

        Where they go on past what was the last epoch, its evaluation is forgotten, unless they evaluate it too.

        Raises:
            RunDirectoryError: they end before, or where an epoch was trained that they evaluate and was not.
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
        """Adds to one of the timings."""
        self.timings = dataclasses.replace(self.timings, **{what: getattr(self.timings, what) + seconds})


def to_host(tree: Tree) -> Tree:
    """Copies on the host, not views: the next step takes the buffers that those would look at."""
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else np.array(leaf), tree)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key, which NumPy cannot hold."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
