"""Servers and intervals: epochs by `dorylax.pipeline`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, final

import optax

from dorylax.config.schema import TrainConfig
from dorylax.graph.dataset import Dataset
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.base import ModelParts
from dorylax.program.tracing import RowFunction
from dorylax.trainer.arrays import TrainingArrays
from dorylax.trainer.loop_state import Carried, LoopState, to_host
from dorylax.trainer.result import EpochRecord
from dorylax.trainer.runners.base import EpochRunner, RanEpoch


@final
class PipelineRunner(EpochRunner):
    """Runs epochs on a pipeline, and tells it where checkpoints, the end and the switch to synchronous epochs are.

    Args:
        parts: the model.
        data: the data set, in the order in which it was given.
        optimizer: an optax transformation.
        config: of the pipeline.
        train: its settings of training.
        loss: `(output, labels) -> [V]`.

    Raises:
        SplitError: the model cannot be split.
        ConfigError: the pipeline and the data do not fit.
    """

    def __init__(
        self,
        parts: ModelParts,
        data: Dataset,
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        train: TrainConfig,
        *,
        loss: RowFunction,
    ) -> None:
        # Late: runs on one machine need none of it.
        from dorylax.pipeline.engine import Pipeline

        begin = time.perf_counter()
        self._pipeline = Pipeline.of(parts, data, optimizer, config, loss=loss, seed=train.seed)
        self._build_seconds = time.perf_counter() - begin
        self._config = config
        self._train = train
        self._started = False
        self._switched = False

    @property
    def passes(self) -> tuple[str, ...] | None:
        """See `EpochRunner`."""
        return self._pipeline.passes

    @property
    def kept(self) -> tuple[Any, ...]:
        """Nothing: servers keep what they need."""
        return ()

    @property
    def reads_features(self) -> bool:
        """Servers may read them where they lie."""
        return True

    def start(self, loop: LoopState, arrays: TrainingArrays) -> None:  # noqa: ARG002
        """Starts the pipeline where the state stands."""
        from dorylax.pipeline.saved import Saved

        begin = time.perf_counter()
        saved = None if loop.carried is None else Saved(arrays=loop.carried.arrays, record=loop.carried.record)
        trees = [to_host(tree) for tree in (loop.params, loop.opt_state, loop.state)]
        self._pipeline.start(*trees, epoch=loop.epochs, saved=saved)
        self._started = True
        for epoch in range(loop.epochs, self._train.epochs):
            if self._train.saves(epoch) or epoch + 1 == self._train.epochs:
                self._pipeline.barrier(epoch + 1)
        self._switch_after(loop.history)
        loop.spend("compile", self._build_seconds + time.perf_counter() - begin)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`. Seconds are those of the pipeline's clock."""
        self._switch_after(loop.history[-1:])
        epoch = self._pipeline.run_epoch()
        loop.params, loop.opt_state, loop.state = epoch.params, epoch.opt_state, epoch.state
        bill = self._pipeline.bill()
        return RanEpoch(float(epoch.loss), float(epoch.seconds), None if bill is None else bill.total)

    def drain(self, epochs: int) -> int:
        """Closes the gate: intervals that are ahead are waited for."""
        return max(epochs, self._pipeline.drain())

    def carried(self) -> Carried | None:
        """What the servers hold; None where intervals stand in different epochs."""
        saved = self._pipeline.save() if self._started else None
        return None if saved is None else Carried(saved.arrays, saved.record)

    def report(self) -> dict[str, Any] | None:
        """What was run, and the pipeline's counters."""
        if not self._started:
            return None
        config = self._config
        return {
            "mode": config.mode,
            "staleness": config.staleness,
            "servers": config.servers,
            "intervals": config.intervals,
            "counters": self._pipeline.counters(),
            "rows_by_lag": self._pipeline.rows_by_lag(),
            "tensor": config.tensor.backend,
            "bill": self._bill(),
        }

    def _bill(self) -> dict[str, Any] | None:
        bill, prices = self._pipeline.bill(), self._pipeline.prices
        if bill is None or prices is None:
            return None
        return {
            "cluster": prices.name,
            "prices_as_of": prices.prices_as_of,
            "seconds": self._pipeline.seconds,
            **dataclasses.asdict(bill),
            "dollars": bill.total,
            "value": bill.value(self._pipeline.seconds),
        }

    def trace(self) -> Sequence[dict[str, Any]] | None:
        """Every task."""
        return self._pipeline.trace_events() if self._started else None

    def close(self) -> None:
        """See `EpochRunner`."""
        self._pipeline.close()

    def _switch_after(self, records: Sequence[EpochRecord]) -> None:
        """Goes on synchronously, once, if one of these epochs came near the target."""
        margin, target = self._config.switch_margin, self._train.target_accuracy
        if self._switched or margin is None or target is None:
            return
        if any(record.val_accuracy is not None and record.val_accuracy >= target - margin for record in records):
            self._pipeline.synchronise()
            self._switched = True
