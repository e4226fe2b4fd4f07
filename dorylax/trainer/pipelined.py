"""Trains epochs on servers and intervals with `dorylax.pipeline`."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
import optax

from dorylax.config.schema import TrainConfig
from dorylax.errors import RunError
from dorylax.graph.data_shape import DataShape
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData
from dorylax.metrics.evaluation import Evaluated
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.base import ModelParts, Tree
from dorylax.runs.result import EpochRecord
from dorylax.store.servers import ServerMetrics
from dorylax.trainer.loop_state import Carried, LoopState, to_host
from dorylax.trainer.runner import EpochRunner, Evaluate, RanEpoch
from dorylax.trainer.step.compiled import TrainingArrays
from dorylax.trainer.step.objective import Objective

if TYPE_CHECKING:
    from dorylax.pipeline.engine import Pipeline
    from dorylax.pipeline.hosts.pipeline import HostsPipeline
    from dorylax.pipeline.run import PipelineRun
    from dorylax.pipeline.trace import TraceWriter


@final
class PipelineRunner(EpochRunner):
    """Runs epochs on a pipeline, and informs it of checkpoints, the end, and the switch to synchronous epochs.

    Args:
        parts: The model.
        data: The data set in the given order, or the location of its shards.
        optimizer: An optax transformation.
        config: Configuration of the pipeline.
        train: Training settings.
        objective: Loss and metric.
        trace: File for the trace of all tasks; None: no trace.
        checkpoints: Place of the checkpoints, as for `open_storage`; None: no checkpoints.

    Raises:
        SplitError: The model cannot be split.
        ConfigError: The pipeline and the data do not fit.
    """

    def __init__(
        self,
        parts: ModelParts,
        data: Dataset | ShardedData,
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        train: TrainConfig,
        *,
        objective: Objective,
        trace: Path | None,
        checkpoints: str | None,
    ) -> None:
        begin = time.perf_counter()
        self._pipeline = _pipeline(parts, data, optimizer, config, objective=objective, seed=train.seed)
        self._build_seconds = time.perf_counter() - begin
        self._config = config
        self._train = train
        self._trace_path, self._checkpoints = trace, checkpoints
        self._run: PipelineRun | None = None
        self._trace: TraceWriter | None = None
        self._switched = False
        self._servers: Sequence[ServerMetrics] = ()

    def check_memory(self) -> None:
        """Refuse hosts that do not fit into memory.

        Raises:
            RunError: All processes together need more than there is, or one on a node more than `ray.memory`.
        """
        from dorylax.memory.hosts import estimate_hosts  # late, as the engine
        from dorylax.pipeline.hosts.pipeline import HostsPipeline
        from dorylax.trainer.footprint.of_trainer import parameter_bytes

        pipeline = self._pipeline
        if not isinstance(pipeline, HostsPipeline):
            return
        plans = [one.plan for one in (pipeline.prepared, pipeline.evaluation) if one is not None]
        parameters = parameter_bytes(pipeline.parts, pipeline.optimizer)
        data = pipeline.data
        shards = data if isinstance(data, ShardedData) else None
        shape = DataShape.of(data) if isinstance(data, Dataset) else data.summary.shape
        found = estimate_hosts(self._config, plans, parameters, shape, shards, loads=False)
        if not found.fits:
            raise RunError(found.refusal())

    @property
    def passes(self) -> tuple[str, ...] | None:
        """See `EpochRunner`."""
        return self._pipeline.passes

    @property
    def evaluate(self) -> Evaluate | None:
        """Evaluation on hosts, which hold the rows; None for inline servers."""
        return None if self._config.hosts == "inline" else self._evaluate

    def start(self, loop: LoopState, arrays: TrainingArrays | None) -> None:  # noqa: ARG002
        """Start the pipeline from the state."""
        from dorylax.pipeline.saved import Saved  # late, as the engine
        from dorylax.pipeline.trace import TraceWriter

        begin = time.perf_counter()
        carried = loop.carried
        saved = None if carried is None else Saved(carried.arrays, carried.record, carried.parts)
        trees = [to_host(tree) for tree in (loop.params, loop.opt_state, loop.state)]
        if self._trace_path is not None:
            self._trace = TraceWriter.begin(
                self._trace_path, self._config.trace, epochs=loop.epochs, continues=saved is not None
            )
        trace = None if self._trace is None else self._trace.add
        run = self._run = self._pipeline.start(*trees, epoch=loop.epochs, saved=saved, trace=trace)
        if self._checkpoints is not None:
            run.check_checkpoints(self._checkpoints)
        for epoch in range(loop.epochs, self._train.epochs):
            if self._train.saves(epoch) or epoch + 1 == self._train.epochs:
                run.barrier(epoch + 1)
        self._switch_after(run, loop.history)
        loop.spend("compile", self._build_seconds + time.perf_counter() - begin)

    def run(self, loop: LoopState) -> RanEpoch:
        """See `EpochRunner`. Seconds are measured on the pipeline's clock."""
        run = self._started()
        self._switch_after(run, loop.history[-1:])
        epoch = run.run_epoch()
        self._servers = epoch.servers
        loop.params, loop.opt_state, loop.state = epoch.params, epoch.opt_state, epoch.state
        if self._trace is not None:
            self._trace.flush(epoch.epoch + 1)
        bill = run.bill()
        return RanEpoch(float(epoch.loss), float(epoch.seconds), None if bill is None else bill.total)

    def outputs(self, params: Tree, state: Tree) -> Any:
        """Return the model's outputs for `Trainer.predict`, from hosts that are started and stopped for this call.

        Args:
            params: Parameters.
            state: The model's other state.
        """
        from dorylax.pipeline.hosts.pipeline import HostsPipeline  # late, as the engine

        assert isinstance(self._pipeline, HostsPipeline)
        pipeline = self._pipeline.of_outputs()
        assert pipeline.evaluation is not None
        version = to_host(params), to_host(state)
        with contextlib.closing(pipeline.start(version[0], None, version[1])) as run:
            leaves = run.outputs(*version)
        floats = (np.issubdtype(leaf.dtype, np.floating) for leaf in leaves)
        shown = [leaf.astype(np.float32) if real else leaf for leaf, real in zip(leaves, floats, strict=True)]
        return jax.tree.unflatten(pipeline.evaluation.plan.program.traced.trees["output"], shown)

    @property
    def servers(self) -> Sequence[ServerMetrics]:
        """See `EpochRunner`."""
        return self._servers

    def drain(self, epochs: int) -> int:
        """See `EpochRunner`. Closes the gate, and lets the intervals that are ahead finish."""
        return max(epochs, self._started().drain())

    def carried(self) -> Carried | None:
        """Return the servers' state; None if intervals are in different epochs."""
        saved = None if self._run is None else self._run.save()
        if self._trace is not None:
            self._trace.checkpoint(settled=saved is not None and self._config.clock == "virtual")
        return None if saved is None else Carried(saved.arrays, saved.record, saved.parts)

    def report(self) -> dict[str, Any] | None:
        """Return the pipeline's settings, counters, bill and losses."""
        if self._run is None:
            return None
        config, run = self._config, self._run
        return {
            "mode": config.mode,
            "staleness": config.staleness,
            "servers": config.servers,
            "intervals": config.intervals,
            "epochs_ahead": run.epochs_ahead,
            "counters": run.counters(),
            "rows_by_lag": run.rows_by_lag(),
            "tensor": config.tensor.backend,
            "bill": _bill(run),
            "losses": [dataclasses.asdict(loss) for loss in run.losses],
        }

    def finish(self) -> None:
        """Close the trace."""
        if self._trace is not None:
            self._trace.close()

    def close(self) -> None:
        """See `EpochRunner`."""
        self.finish()
        if self._run is not None:
            self._run.close()

    def _evaluate(self, params: Tree, state: Tree) -> Evaluated:
        from dorylax.pipeline.hosts.run import HostsRun  # late, as the engine

        run = self._started()
        assert isinstance(run, HostsRun)
        return run.evaluate(to_host(params), to_host(state))

    def _started(self) -> PipelineRun:
        if self._run is None:
            raise RuntimeError("the pipeline is not started: call start() first")
        return self._run

    def _switch_after(self, run: PipelineRun, records: Sequence[EpochRecord]) -> None:
        """Switch to synchronous epochs, once, if one of these epochs came near the target."""
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


def _pipeline(
    parts: ModelParts,
    data: Dataset | ShardedData,
    optimizer: optax.GradientTransformation,
    config: PipelineConfig,
    *,
    objective: Objective,
    seed: int,
) -> Pipeline | HostsPipeline:
    """Build the pipeline; imports are late, since runs on one machine do not need them."""
    if config.hosts != "inline":
        from dorylax.pipeline.hosts.pipeline import HostsPipeline

        return HostsPipeline.of(parts, data, optimizer, config, loss=objective.rows, sums=objective.sums, seed=seed)
    from dorylax.pipeline.engine import Pipeline

    assert isinstance(data, Dataset)
    return Pipeline.of(parts, data, optimizer, config, loss=objective.rows, seed=seed)
