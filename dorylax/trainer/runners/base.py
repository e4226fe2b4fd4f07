"""The contract of whatever trains one epoch after the other; judging, recording and saving them is the trainer's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dorylax.program.model.base import Tree
from dorylax.runs.servers import ServerMetrics
from dorylax.trainer.loop_state import Carried, LoopState
from dorylax.trainer.step.arrays import TrainingArrays

Evaluate = Callable[[Tree, Tree], tuple[Any, bool]]
"""`(params, state) -> (sums, nan)`: `Objective.sums` on the three masks, and whether any output is NaN."""


class RanEpoch(NamedTuple):
    """One epoch that was trained.

    Attributes:
        loss: masked training loss, without penalty, before the update; may be NaN or infinite.
        seconds: that training took, on the runner's clock.
        dollars: that the run has cost so far; None where it costs nothing.
    """

    loss: float
    seconds: float
    dollars: float | None = None


class EpochRunner(ABC):
    """Trains epochs. `start` once, then `run` for each epoch, `close` in any case."""

    @property
    @abstractmethod
    def passes(self) -> tuple[str, ...] | None:
        """Passes of the program that it runs; None where there is none."""

    @property
    @abstractmethod
    def kept(self) -> tuple[Any, ...]:
        """What it keeps on the device from epoch to epoch, as `Gradient.keep` gives it; nothing before `start`."""

    @property
    @abstractmethod
    def reads_features(self) -> bool:
        """Whether epochs read the features of the data set that it was started with."""

    @property
    @abstractmethod
    def evaluate(self) -> Evaluate | None:
        """What evaluates a version, once it is started; None: one machine does, on the whole data set."""

    @abstractmethod
    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:
        """Gets ready for the epochs from `loop.epochs` on.

        Args:
            loop: the state to go on from; its timings are charged.
            arrays: the data set on the device, as evaluations take it; None where `evaluate` is not.
        """

    @abstractmethod
    def run(self, loop: LoopState) -> RanEpoch:
        """Trains the next epoch, and leaves in the state what there is after it: params, opt_state, state."""

    @property
    @abstractmethod
    def servers(self) -> Sequence[ServerMetrics]:
        """What each server did in the epoch that was run last; nothing where there are none."""

    @abstractmethod
    def drain(self, epochs: int) -> int:
        """Asks for an end after as few more epochs as can be.

        Args:
            epochs: how many are finished.

        Returns:
            After how many finished epochs the state can be saved whole; as many at least.
        """

    @abstractmethod
    def carried(self) -> Carried | None:
        """What a checkpoint must hold besides the state, to go on bit for bit; None where there is nothing such."""

    @abstractmethod
    def report(self) -> dict[str, Any] | None:
        """What a summary says about how the epochs were run, as JSON values; None where there is nothing to say."""

    @abstractmethod
    def finish(self) -> None:
        """Completes what it writes into the run's directory, after the last epoch; harmless where nothing was started."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of threads, buffers and files; harmless where nothing was started."""
