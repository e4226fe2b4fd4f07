"""The training loop: each epoch is run, recorded, reported to observers and saved, until the run stops."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import final

from dorylax.config.schema import TrainConfig
from dorylax.graph.dataset import Dataset, arrays_of
from dorylax.graph.mapped import check_unchanged, release
from dorylax.graph.sharded_data import ShardedData, mask_counts
from dorylax.graph.task_data import TaskData
from dorylax.observers.base import Observer
from dorylax.program.model.base import ModelParts, Tree
from dorylax.runs.result import Stopped, TrainingError, TrainResult
from dorylax.store.metrics import MetricsWriter
from dorylax.store.servers import ServersWriter
from dorylax.trainer.epoch import run_epoch
from dorylax.trainer.evaluation import Evaluation, OneMachineEvaluation
from dorylax.trainer.loop_state import LoopState, to_host
from dorylax.trainer.one_machine import OneMachine
from dorylax.trainer.options import stop_reason
from dorylax.trainer.runners.base import EpochRunner
from dorylax.trainer.saving.run_files import RunFiles
from dorylax.trainer.signals import StopRequests
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.trained import TrainedModel


@final
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TrainingLoop:
    """The epochs of one `fit`.

    Attributes:
        functions: Step functions of the model and its optimizer.
        parts: The model.
        data: The user's data set, or the location of its shards.
        machine: Evaluates; also trains unless there is a pipeline.
        runner: Trains the epochs.
        train: Training settings.
        observers: Objects notified of each epoch.
        files: Files of the run; None without a run directory.
        requests: Stop signals received; None if signals are not watched.
        trained: Called with the last state and with the best epoch's parameters and carried state on the host; returns the
            trained model.
        begun: Start of `fit`, in seconds of `time.perf_counter`.
    """

    functions: StepFunctions
    parts: ModelParts
    data: Dataset | TaskData | ShardedData
    machine: OneMachine
    runner: EpochRunner
    train: TrainConfig
    observers: Sequence[Observer]
    files: RunFiles | None
    requests: StopRequests | None
    trained: Callable[[LoopState, Tree, Tree], TrainedModel]
    begun: float

    def run(self, loop: LoopState) -> TrainResult:
        """Train from a state to the end of the run; `Trainer.fit` lists the errors."""
        with contextlib.nullcontext() if self.files is None else self.files.saving():
            return self._run(loop)

    def _run(self, loop: LoopState) -> TrainResult:
        runner, files, requests = self.runner, self.files, self.requests
        first_epoch = loop.epochs
        observers = self.observers
        servers: ServersWriter | None = None
        if files is not None:
            servers = ServersWriter(files.directory.servers_path, loop.epochs)
            observers = (MetricsWriter(files.directory.metrics_path, loop.history), *observers)
        for observer in observers:
            observer.started(self.train.epochs, first_epoch)

        stopped = self._stop_reason(loop)
        if stopped is None:
            loop.spend("compile", self.machine.check_memory())
            if files is not None:
                files.directory.remove_summary()
            evaluation = self._start(loop)
        last: int | None = None  # number of epochs after which the run stops for a signal
        while stopped is None:
            try:
                try:
                    record = run_epoch(runner, evaluation, self.train, loop)
                finally:  # also after an error: results of changed data, even a divergence, are never saved
                    if isinstance(self.data, ShardedData):
                        self.data.check_unchanged()
                    else:
                        check_unchanged(*arrays_of(self.data))
            except TrainingError as error:
                result = self._end(loop, "diverged", first_epoch)
                self._summarise(result)
                raise TrainingError(str(error), result) from None
            for observer in observers:
                observer.epoch(record)
            if servers is not None:
                servers.write(runner.servers)
            stopped = self._stop_reason(loop)
            if stopped is None and requests is not None and requests.any:
                last = runner.drain(loop.epochs) if last is None else last
                stopped = "signal" if loop.epochs >= last else None
            if servers is not None and (stopped is not None or self.train.saves(record.epoch)):
                servers.sync()  # before the checkpoint, which does not contain these records
            if stopped is None and files is not None and self.train.saves(record.epoch):
                loop.carried, loop.report = runner.carried(), runner.report()
                files.save(loop, wait=False)
        result = self._end(loop, stopped, first_epoch)
        for observer in observers:
            observer.finished(result)
        self._summarise(result)
        return result

    def _start(self, loop: LoopState) -> Evaluation:
        """Start the runner; return the evaluation of its epochs."""
        runner, functions = self.runner, self.functions
        evaluate = runner.evaluate
        if evaluate is not None:
            runner.start(loop, None)
            return Evaluation(functions.objective, evaluate, mask_counts(self.data))
        machine, data = self.machine, self.data
        assert not isinstance(data, ShardedData)
        arrays = machine.arrays
        loop.spend("compile", machine.order_seconds)
        machine.order_seconds = 0.0
        runner.start(loop, machine.training_arrays)
        only_evaluated = () if runner.reads_features else (data.features,)
        release(*only_evaluated)
        here = OneMachineEvaluation(
            functions,
            machine.forward,
            runner.kept,
            arrays,
            self.parts.streams,
            loop=loop,
            only_here=only_evaluated,
        )
        return Evaluation(functions.objective, here, mask_counts(data))

    def _end(self, loop: LoopState, stopped: Stopped, first_epoch: int) -> TrainResult:
        """Build the result; set the model and `predict` before writing files, so that a full disk loses no parameters."""
        runner, files = self.runner, self.files
        params, state = (to_host(tree) for tree in loop.chosen)
        trained = self.trained(loop, params, state)
        # A run stopped by a signal keeps it without files too, for `fit(resume=True)`; state of other hosts exists only in
        # files.
        keeps = files is not None or (stopped == "signal" and runner.evaluate is None)
        loop.carried = runner.carried() if keeps and not loop.diverged else None
        report = runner.report()  # after `carried`, which waits for late calls, so that the report counts them
        if report is not None:  # None: no epoch was trained now, and the checkpoint's report stays valid
            loop.report = report
        if files is not None:
            files.save(loop)
        result = TrainResult(
            history=loop.history,
            params=params,
            last_params=to_host(loop.params),
            best_epoch=None if loop.best is None else loop.best.epoch,
            stopped=stopped,
            timings=dataclasses.replace(loop.timings, wall=time.perf_counter() - self.begun),
            metric=self.functions.objective.metric,
            test_examples=mask_counts(self.data)[2],
            first_epoch=first_epoch,
            passes=runner.passes,
            pipeline=loop.report,
            state=state,
            trained=trained,
        )
        if files is not None:
            runner.finish()
        return result

    def _summarise(self, result: TrainResult) -> None:
        """Write summary.json, which marks the run as complete: last, after the observers' own files."""
        if self.files is not None:
            self.files.summarise(result, self.train.seed)

    def _stop_reason(self, loop: LoopState) -> Stopped | None:
        return stop_reason(self.train, loop.history, None if loop.best is None else loop.best.epoch)
