"""Servers and intervals: epochs by `dorylax.pipeline`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import optax

from dorylax.config.schema import TrainConfig
from dorylax.graph.dataset import Dataset
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.base import ModelParts
from dorylax.program.model.loss import RowFunction
from dorylax.runs.result import EpochRecord
from dorylax.runs.servers import ServerMetrics
from dorylax.trainer.loop_state import Carried, LoopState, to_host
from dorylax.trainer.runners.base import EpochRunner, RanEpoch
from dorylax.trainer.step.arrays import TrainingArrays

if TYPE_CHECKING:
    from dorylax.pipeline.run import PipelineRun
    from dorylax.pipeline.trace import TraceWriter


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
        trace: the file that shows what every task did; None: nothing does.

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
        trace: Path | None,
    ) -> None:
        from dorylax.pipeline.engine import Pipeline  # late: runs on one machine need none of it

        begin = time.perf_counter()
        self._pipeline = Pipeline.of(parts, data, optimizer, config, loss=loss, seed=train.seed)
        self._build_seconds = time.perf_counter() - begin
        self._config = config
        self._train = train
        self._trace_path = trace
        self._run: PipelineRun | None = None
        self._trace: TraceWriter | None = None
        self._switched = False
        self._servers: Sequence[ServerMetrics] = ()

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
        from dorylax.pipeline.saved import Saved  # late, as the engine
        from dorylax.pipeline.trace import TraceWriter

        begin = time.perf_counter()
        saved = None if loop.carried is None else Saved(arrays=loop.carried.arrays, record=loop.carried.record)
        trees = [to_host(tree) for tree in (loop.params, loop.opt_state, loop.state)]
        if self._trace_path is not None:
            self._trace = TraceWriter.begin(
                self._trace_path, self._config.trace, epochs=loop.epochs, continues=saved is not None
            )
        trace = None if self._trace is None else self._trace.add
        run = self._run = self._pipeline.start(*trees, epoch=loop.epochs, saved=saved, trace=trace)
        for epoch in range(loop.epochs, self._train.epochs):
            if self._train.saves(epoch) or epoch + 1 == self._train.epochs:
                run.barrier(epoch + 1)
        self._switch_after(run, loop.history)
        loop.spend("compile", self._build_seconds + time.perf_counter() - begin)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`. Seconds are those of the pipeline's clock."""
        run = self._started()
        self._switch_after(run, loop.history[-1:])
        epoch = run.run_epoch()
        self._servers = epoch.servers
        loop.params, loop.opt_state, loop.state = epoch.params, epoch.opt_state, epoch.state
        if self._trace is not None:
            self._trace.flush(epoch.epoch + 1)
        bill = run.bill()
        return RanEpoch(float(epoch.loss), float(epoch.seconds), None if bill is None else bill.total)

    @property
    def servers(self) -> Sequence[ServerMetrics]:
        """See `EpochRunner`."""
        return self._servers

    def drain(self, epochs: int) -> int:
        """Closes the gate: intervals that are ahead are waited for."""
        return max(epochs, self._started().drain())

    def carried(self) -> Carried | None:
        """What the servers hold; None where intervals stand in different epochs."""
        saved = None if self._run is None else self._run.save()
        if self._trace is not None:
            self._trace.checkpoint(settled=saved is not None and self._config.clock == "virtual")
        return None if saved is None else Carried(saved.arrays, saved.record)

    def report(self) -> dict[str, Any] | None:
        """What was run, and the pipeline's counters."""
        if self._run is None:
            return None
        config, run = self._config, self._run
        return {
            "mode": config.mode,
            "staleness": config.staleness,
            "servers": config.servers,
            "intervals": config.intervals,
            "counters": run.counters(),
            "rows_by_lag": run.rows_by_lag(),
            "tensor": config.tensor.backend,
            "bill": _bill(run),
        }

    def finish(self) -> None:
        """Closes the trace."""
        if self._trace is not None:
            self._trace.close()

    def close(self) -> None:
        """See `EpochRunner`."""
        self.finish()
        if self._run is not None:
            self._run.close()

    def _started(self) -> PipelineRun:
        if self._run is None:
            raise RuntimeError("the pipeline is not started: call start() first")
        return self._run

    def _switch_after(self, run: PipelineRun, records: Sequence[EpochRecord]) -> None:
        """Goes on synchronously, once, if one of these epochs came near the target."""
        margin, target = self._config.switch_margin, self._train.target_accuracy
        if self._switched or margin is None or target is None:
            return
        if any(record.val_accuracy is not None and record.val_accuracy >= target - margin for record in records):
            run.synchronise()
            self._switched = True


def _bill(run: PipelineRun) -> dict[str, Any] | None:
    bill, prices = run.bill(), run.prices
    if bill is None or prices is None:
        return None
    return {
        "cluster": prices.name,
        "prices_as_of": prices.prices_as_of,
        "seconds": run.seconds,
        **dataclasses.asdict(bill),
        "dollars": bill.total,
        "value": bill.value(run.seconds),
    }
