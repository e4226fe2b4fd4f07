"""The contract of runners, which train one epoch after the other: `one_machine`, `streamed` and `pipelined` have one each.

The trainer evaluates, records and saves epochs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dorylax.program.model.base import Tree
from dorylax.store.servers import ServerMetrics
from dorylax.trainer.loop_state import Carried, LoopState
from dorylax.trainer.step.compiled import TrainingArrays

Evaluate = Callable[[Tree, Tree], tuple[Any, bool]]
"""`(params, state) -> (sums, nan)`: `Objective.sums` on the three masks, and whether any output is NaN."""


class RanEpoch(NamedTuple):
    """Results of a training epoch.

    Attributes:
        loss: Masked training loss, without penalty, before the update; may be NaN or infinite.
        seconds: Training time, on the runner's clock.
        dollars: Cost of the run so far; None if it costs nothing.
    """

    loss: float
    seconds: float
    dollars: float | None = None


class EpochRunner(ABC):
    """Trains epochs: call `start` once, `run` for each epoch, and `close` in any case."""

    @property
    @abstractmethod
    def passes(self) -> tuple[str, ...] | None:
        """Passes of the program that it runs; None if it runs no program."""

    @property
    def kept(self) -> tuple[Any, ...]:
        """Arrays kept on the device from epoch to epoch, as `Gradient.keep` returns them; empty before `start`."""
        return ()

    @property
    def reads_features(self) -> bool:
        """Whether epochs read the features of the data set given to `start`."""
        return True

    @property
    def evaluate(self) -> Evaluate | None:
        """Function that evaluates parameters after `start`; None: one machine evaluates, on the whole data set."""
        return None

    @abstractmethod
    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:
        """Prepare the epochs from `loop.epochs` on.

        Args:
            loop: State to continue from; preparation is added to its timings.
            arrays: The data set on the device, as for evaluations; None if `evaluate` is not None.
        """

    @abstractmethod
    def run(self, loop: LoopState) -> RanEpoch:
        """Train the next epoch, and update the state's params, opt_state and state."""

    @property
    def servers(self) -> Sequence[ServerMetrics]:
        """Metrics of each server in the last epoch; empty without servers."""
        return ()

    def drain(self, epochs: int) -> int:
        """Request an end after as few more epochs as possible.

        Args:
            epochs: Number of finished epochs.

        Returns:
            Number of finished epochs (at least `epochs`) after which the state can be saved.
        """
        return epochs

    def carried(self) -> Carried | None:
        """Return the additional state that a checkpoint needs to continue bit for bit; None if there is none."""
        return None

    def report(self) -> dict[str, Any] | None:
        """Return the summary's report on the epochs, as JSON values; None if there is none."""
        return None

    def finish(self) -> None:  # noqa: B027
        """Complete the runner's files in the run directory after the last epoch; safe to call before `start`."""

    def close(self) -> None:  # noqa: B027
        """Release threads, buffers and files; safe to call before `start`."""
