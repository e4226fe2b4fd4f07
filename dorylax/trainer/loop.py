"""The order of things in a run: epoch, record, observers, checkpoint, stop."""

from __future__ import annotations

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
from dorylax.runs.metrics import MetricsWriter
from dorylax.runs.result import Stopped, Trained, TrainingError, TrainResult
from dorylax.runs.servers import ServersWriter
from dorylax.trainer.epoch import run_epoch
from dorylax.trainer.evaluation import Evaluation, OneMachineEvaluation
from dorylax.trainer.loop_state import LoopState, to_host
from dorylax.trainer.one_machine import OneMachine
from dorylax.trainer.options import stop_reason
from dorylax.trainer.runners.base import EpochRunner
from dorylax.trainer.saving.run_files import RunFiles
from dorylax.trainer.signals import StopRequests
from dorylax.trainer.step.functions import StepFunctions


@final
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TrainingLoop:
    """The epochs of one `fit`.

    Attributes:
        functions: of the model and its optimizer.
        parts: the model.
        data: the data set, as the user gave it, or where its shards are.
        machine: what evaluates, and trains where no pipeline does.
        runner: what trains the epochs.
        train: its settings of training.
        observers: told about each epoch.
        files: the run's directory; None where there is none.
        requests: signals that ask for an end; None where they are not watched.
        trained: called with the last state, and parameters and carried state of the best epoch on the host; gives the model
            with them.
        begun: when `fit` began, on the machine's clock.
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
    trained: Callable[[LoopState, Tree, Tree], Trained]
    begun: float

    def run(self, loop: LoopState) -> TrainResult:
        """Trains from a state to the end of the run; `Trainer.fit` says what it raises."""
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
        last: int | None = None  # where a signal stops, once one has come
        while stopped is None:
            try:
                try:
                    record = run_epoch(runner, evaluation, self.train, loop)
                finally:  # whatever came of it: no epoch, and no divergence, of other data is saved
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
                servers.sync()  # a checkpoint does not have them
            if stopped is None and files is not None and self.train.saves(record.epoch):
                loop.carried, loop.report = runner.carried(), runner.report()
                files.save(loop)
        result = self._end(loop, stopped, first_epoch)
        for observer in observers:
            observer.finished(result)
        self._summarise(result)
        return result

    def _start(self, loop: LoopState) -> Evaluation:
        """Gets the runner ready; gives what judges its epochs."""
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
        """The result. Model and `predict` have it before the run directory, so that a full disk loses nothing."""
        runner, files = self.runner, self.files
        params, state = (to_host(tree) for tree in loop.chosen)
        trained = self.trained(loop, params, state)
        # Without files, too, so that `fit(resume=True)` goes on; but of hosts elsewhere only files have it.
        keeps = files is not None or (stopped == "signal" and runner.evaluate is None)
        loop.carried = runner.carried() if keeps and not loop.diverged else None
        report = runner.report()  # of the late calls, too, that `carried` waits for
        if report is not None:  # else nothing was trained now, and the checkpoint says how the run was
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
        """Writes summary.json, by which a run is complete: after everything else, what observers write included."""
        if self.files is not None:
            self.files.summarise(result, self.train.seed)

    def _stop_reason(self, loop: LoopState) -> Stopped | None:
        return stop_reason(self.train, loop.history, None if loop.best is None else loop.best.epoch)
