"""The training loop: each epoch is run, recorded, reported to observers and saved, until the run stops.

SIGTERM and Ctrl-C set flags, which the loop reads between epochs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, final

import jax

from dorylax.config.schema import TrainConfig
from dorylax.graph.dataset import Dataset, arrays_of
from dorylax.graph.mapped import check_unchanged, release
from dorylax.graph.sharded_data import ShardedData, mask_counts
from dorylax.observers.base import Observer
from dorylax.program.model.base import ModelParts, Tree
from dorylax.runs.metric import METRICS
from dorylax.runs.result import EpochRecord, Stopped, TrainingError, TrainResult
from dorylax.signals import hang_up_terminates
from dorylax.store.metrics import MetricsWriter
from dorylax.store.servers import ServersWriter
from dorylax.trainer.loop_state import LoopState, to_host
from dorylax.trainer.one_machine import OneMachine
from dorylax.trainer.runner import EpochRunner, Evaluate
from dorylax.trainer.saving.run_files import RunFiles
from dorylax.trainer.step.functions import StepFunctions
from dorylax.trainer.trained import TrainedModel

_WHAT_TO_TRY = (
    "Try a lower optimizer.learning_rate, data.row_normalise=true or optax.clip_by_global_norm; on one machine "
    "JAX_DEBUG_NANS=1 in the environment, or jax.config.update('jax_debug_nans', True) before fit(), names the line that "
    "makes the first NaN"
)


@final
class StopRequests:
    """Context in which the first SIGTERM and the first Ctrl-C only set a flag; handlers are restored at its end.

    Args:
        terminate: Whether to watch SIGTERM; otherwise its handler stays.

    A second signal acts immediately, even if the epoch waits for hanging workers. Ctrl-C raises KeyboardInterrupt. SIGTERM
    runs its former handler; if that returns, or if the default action would end the process, it raises SystemExit. SIGHUP
    counts as SIGTERM, but never as a second one (`dorylax.signals`). Outside the main thread, where Python allows no
    handlers, the context does nothing. A SIGINT handler other than Python's default stays.

    Attributes:
        terminate: Whether SIGTERM has arrived.
        interrupt: Whether Ctrl-C has arrived.
    """

    def __init__(self, *, terminate: bool = True) -> None:
        self._watches_terminate = terminate
        self.terminate = False
        self.interrupt = False
        self._previous: dict[signal.Signals, Any] = {}
        self._hang_up = contextlib.ExitStack()

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():
            if self._watches_terminate:
                self._install(signal.SIGTERM, self._on_terminate)
                self._hang_up.enter_context(hang_up_terminates())
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._install(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up.close()
        while self._previous:
            signal.signal(*self._previous.popitem())

    def pass_on(self, *, stopped: bool, answered: bool = False) -> None:
        """Pass on unhandled signals to the former handlers, after the context.

        Args:
            stopped: Whether SIGTERM stopped the work and so has been handled. A SIGTERM that arrived too late for that is
                passed on.
            answered: Whether the caller handles Ctrl-C; otherwise it is raised.

        Raises:
            KeyboardInterrupt: Ctrl-C has arrived and is not answered.
        """
        if self.interrupt and not answered:
            raise KeyboardInterrupt
        if self.terminate and not stopped:
            signal.raise_signal(signal.SIGTERM)

    @property
    def any(self) -> bool:
        """Whether either signal has arrived."""
        return self.terminate or self.interrupt

    def _install(self, number: signal.Signals, handler: Any) -> None:
        previous = signal.signal(number, handler)
        # None: the handler was not installed from Python, so Python cannot restore it.
        self._previous[number] = signal.SIG_DFL if previous is None else previous

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self.terminate:
            before = self._previous[signal.SIGTERM]
            if callable(before):
                before(number, frame)
            raise SystemExit(128 + number)  # not the default action, which would leave workers and files behind
        self.terminate = True

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.interrupt = True
        signal.signal(signal.SIGINT, self._previous.pop(signal.SIGINT))


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
    data: Dataset | ShardedData
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
            evaluate, counts = self._start(loop), mask_counts(self.data)
        last: int | None = None  # number of epochs after which the run stops for a signal
        while stopped is None:
            try:
                try:
                    record = self._epoch(evaluate, counts, loop)
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

    def _start(self, loop: LoopState) -> Evaluate:
        """Start the runner; return the evaluation of its epochs, compiled once: an exact forward pass without dropout."""
        runner, machine, data = self.runner, self.machine, self.data
        if runner.evaluate is not None:
            evaluate = runner.evaluate
            runner.start(loop, None)
            return evaluate
        assert not isinstance(data, ShardedData)
        arrays = machine.arrays
        loop.spend("compile", machine.order_seconds)
        machine.order_seconds = 0.0
        runner.start(loop, machine.training_arrays)
        only_evaluated = () if runner.reads_features else (data.features,)
        release(*only_evaluated)
        inputs = (self.parts.streams, machine.forward.kept_of(runner.kept), arrays)
        compiled, seconds = self.functions.evaluation(machine.forward).prepare(loop.params, loop.state, inputs)
        loop.spend("compile", seconds)

        def evaluate_here(params: Tree, state: Tree) -> tuple[Any, bool]:
            result: Any = compiled(params, state, inputs)
            sums, nan = jax.device_get(result)
            release(*only_evaluated)  # the pages of memory-mapped features
            return sums, bool(nan)

        return evaluate_here

    def _epoch(self, evaluate: Evaluate, counts: Sequence[int], loop: LoopState) -> EpochRecord:
        """Train the next epoch, check it, evaluate it where the settings say so, and add it to the state.

        Args:
            evaluate: Evaluates parameters.
            counts: Numbers of vertices of the three masks; an empty one has no score.
            loop: The state.

        Raises:
            TrainingError: The loss is NaN or infinite, or, after the update, an output is NaN or the metric of an
                evaluation is not finite. The state is then marked as diverged, and its history lacks the epoch.
        """
        epoch, train, objective = loop.epochs, self.train, self.functions.objective
        loss, seconds, dollars = self.runner.run(loop)
        loop.spend("train", seconds)
        if not math.isfinite(loss):
            loop.diverged = True
            raise TrainingError(f"the training loss is {loss} in epoch {epoch}. {_WHAT_TO_TRY}")
        scores: list[float | None] = [None, None, None]
        if train.evaluates(epoch):
            begin = time.perf_counter()
            sums, nan = evaluate(loop.params, loop.state)
            scores = [objective.score(sums, mask) if count else None for mask, count in enumerate(counts)]
            loop.spend("evaluate", time.perf_counter() - begin)
            if nan or not all(math.isfinite(score) for score in scores if score is not None):
                loop.diverged = True
                title = METRICS[objective.metric].title
                counted = objective.metric in ("accuracy", "micro_f1", "macro_f1")
                what = "outputs are NaN" if counted else f"{title} is not finite or outputs are NaN"
                raise TrainingError(f"the model's {what} after the update of epoch {epoch}. {_WHAT_TO_TRY}")
        record = EpochRecord.judged(epoch, loss, scores, objective.metric, seconds=seconds, dollars=dollars)
        loop.add(record, regular=train.evaluates_regularly(epoch))
        return record

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
        """Return the reason to stop after the epochs so far; None to continue."""
        train, best = self.train, loop.best
        if best is not None and best.validated:
            value, judge = best.score("val"), METRICS[best.judge]
            if train.goal is not None and value is not None and judge.reaches(value, train.goal):
                return "target"
            last = loop.history[-1]
            if train.patience is not None and last.evaluated and last.epoch - best.epoch >= train.patience:
                return "patience"
        return "epochs" if loop.epochs >= train.epochs else None
