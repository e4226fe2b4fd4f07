"""`Trainer` trains a model on the whole graph, epoch by epoch, on one machine or with a pipeline.

This module holds the public methods. `loop` orders the steps of a run. `one_machine`, `streamed` and `pipelined` train an
epoch, each as a `runner`, and `step` holds the mathematics. `dorylax.runs.result` defines the reported numbers; `saving`
writes the run directory.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np
import optax
from flax import nnx

from dorylax.config.schema import Gathered, MemoryCheck, Order, SingleConfig, TrainConfig, check_together
from dorylax.graph.dataset import Dataset, arrays_of
from dorylax.graph.mapped import check_unchanged
from dorylax.graph.sharded_data import ShardedData, shapes_of
from dorylax.observers.base import Observer
from dorylax.observers.progress import ProgressBar
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.base import Tree
from dorylax.program.model.flax_nnx import put_back
from dorylax.runs.result import TrainingError, TrainResult
from dorylax.store.run_directory import RunDirectory, UserCode, held
from dorylax.tasks import make_task
from dorylax.tasks.base import Task
from dorylax.tasks.vertices import VertexPrediction
from dorylax.terminal.output import print_error
from dorylax.terminal.session import is_interactive
from dorylax.trainer import from_config
from dorylax.trainer.loop import StopRequests, TrainingLoop
from dorylax.trainer.loop_state import LoopState, describe_run, to_host
from dorylax.trainer.model_parts import further_inputs, parts_of
from dorylax.trainer.one_machine import OneMachine, SingleRunner
from dorylax.trainer.pipelined import PipelineRunner
from dorylax.trainer.runner import EpochRunner
from dorylax.trainer.saving.places import Places
from dorylax.trainer.saving.run_files import RunFiles
from dorylax.trainer.step.functions import step_functions
from dorylax.trainer.step.objective import LOSSES, Loss, Objective
from dorylax.trainer.trained import InputSpec, TrainedModel
from dorylax.trainer.validate import (
    check_arguments,
    check_keep_checkpoints,
    check_metric_defined,
    check_model,
    check_pipeline,
    check_run_directory,
    check_stops,
    check_target,
    check_task,
    check_trains,
)
from dorylax.user_code.lines import user_line_noted

if TYPE_CHECKING:
    from dorylax.config import RunConfig

Epoch = Literal["best", "last"]
"""The parameters to predict with: those of the best epoch (`TrainResult.best_epoch`), or of the last."""


@final
class Trainer:
    """Trains a model on a graph.

    Each epoch is one jitted function: forward pass with dropout, mean loss over the training vertices, gradient, optimizer
    update. Loss and gradient come from the optimised program (`dorylax.program`). A model that cannot be split into graph
    tasks and stages trains as plain jit, with one warning that gives the reason. Randomness depends only on the model's
    streams, the seed, the epoch and the row id, so a resumed run gives the same bits as an uninterrupted one.

    With `pipeline`, servers and intervals train instead (`dorylax.pipeline`), and everything else stays the same. A
    pipeline's epoch ends when its slowest interval finishes, and the newest weights are evaluated then. On the virtual
    clock, training seconds are simulated.

    The constructor checks the arguments; computing and writing start with `fit`.

    Args:
        model: A Flax NNX or Linen module, called as `model(graph, features [V, F]) -> logits [V, C]`, or a function
            `f(params, graph, features)`. Further inputs of the data are passed as keywords if its signature has them (all of
            them if it has `**kwargs`). An NNX module trains with its layers' flags: frozen layers stay frozen. `fit` writes
            the best epoch's parameters into an NNX module; for other models the result holds them.
        data: The data set; or, unless `pipeline.hosts` is inline, the location of its shards (`dorylax partition --out`), so
            that this process holds no graph.
        loss: The loss, averaged over the training vertices: "cross_entropy" of classes; "mse" (the default for targets),
            "mae" or "huber" of targets; or a function `(output, labels) -> [V]`, whose output may be any value that the
            model returns. Link prediction takes "binary_cross_entropy" (its default) or a function.
        metric: The metric of evaluations, by which the best epoch is chosen: one of `dorylax.runs.metric.METRICS`. None:
            accuracy for classes, micro-F1 for multi-label data, ROC AUC for links, and the loss for other losses.
        task: The task (`dorylax.tasks`); None: a prediction for each vertex. For another task, read "vertices" below as the
            task's examples.
        params: The parameters of a function, or the parameters or variables of a Linen module (by default `module.init`
            creates them from `seed`).
        rngs: Names of a Linen module's random streams.
        optimizer: Any optax transformation, including any weight decay; parameters are nested dicts of arrays.
        epochs: Maximum number of epochs, ≥ 1.
        seed: Seed of dropout and of a Linen module's parameters, in 0 … 2³¹-1. Other models bring their own parameters.
        eval_every: Epochs between evaluations; the last epoch is always evaluated.
        target_accuracy: Validation accuracy (a fraction) at which training stops; None: no such stop.
        target: Validation metric at which training stops, whether higher or lower is better; None: no such stop.
        patience: Epochs without a better validation metric after which training stops; None: no such stop.
        checkpoint_every: Epochs between checkpoints; 0: only on a signal and at the end.
        checkpoints: Path or `s3://bucket/prefix` for checkpoints, in a subfolder named after the run directory's path; None:
            the run directory.
        keep_checkpoints: Number of newest checkpoints to keep, ≥ 1.
        run_directory: Directory for configuration, metrics, summary and checkpoints; None: no files.
        resume: Whether to continue from the newest whole checkpoint in the run directory, if there is one.
        observers: Objects notified of each epoch; see `Observer`.
        optimize: Whether to train with the optimised program; False: plain `jax.value_and_grad` of the model, the reference.
        order: Order of vertices in memory, for one machine's step and for evaluations: "given", "community", or "auto"
            (`vertex_order.effective_order`). Results keep the order of `data`. A model that cannot be split always trains in
            the given order, since it may hold rows in that order.
        gathered: Type in which an epoch stores rows for sums over neighbours: "float32", or "bfloat16", which halves the
            bytes and rounds (`program.gathers`). Values computed once, evaluations and `predict` are not rounded.
        memory: "check": a run that does not fit into memory streams its data from disk, or fails if streaming is impossible
            (`OneMachine.streamed`). "stream": the run streams even if it fits, for the same bits with any amount of memory.
            "ignore": no check. Applies to one machine's step only.
        memory_limit: Memory that the run may use, such as "8GiB"; None: that of the machine or its control group.
        scratch: Folder for the files of a streamed run; None: the run directory, or else the system's temporary folder.
        pipeline: Servers, intervals and mode of the pipeline; None: one machine, one jitted step per epoch.

    Raises:
        ValueError: An argument is out of range, arguments exclude each other, or the task, loss or metric does not fit the
            data. Or the model's output is not `[V, C]`, its loss not `[V]`, or it needs an input that the data lack.
        TypeError: An argument has the wrong type.
        Exception: The model raised; a note names its line.

    Warns:
        UserWarning: The whole model is in evaluation mode and trains that way: an NNX model with dropout of rate > 0, or a
            Linen module made with a flag such as `train=False`.
    """

    @user_line_noted()
    def __init__(
        self,
        model: Any,
        data: Dataset | ShardedData,
        *,
        optimizer: optax.GradientTransformation,
        loss: Loss = None,
        metric: str | None = None,
        task: Task | None = None,
        params: Any = None,
        rngs: Sequence[str] = ("dropout",),
        epochs: int = 200,
        seed: int = 0,
        eval_every: int = 1,
        target_accuracy: float | None = None,
        target: float | None = None,
        patience: int | None = None,
        checkpoint_every: int = 0,
        checkpoints: str | os.PathLike[str] | None = None,
        keep_checkpoints: int = 2,
        run_directory: str | os.PathLike[str] | None = None,
        resume: bool = False,
        observers: Sequence[Observer] = (),
        optimize: bool = True,
        order: Order = "auto",
        gathered: Gathered = "float32",
        memory: MemoryCheck = "check",
        memory_limit: str | None = None,
        scratch: str | os.PathLike[str] | None = None,
        pipeline: PipelineConfig | None = None,
    ) -> None:
        self.options = TrainConfig(
            epochs=epochs,
            seed=seed,
            eval_every=eval_every,
            loss=cast("Any", loss) if isinstance(loss, str) and loss in LOSSES else None,
            metric=cast("Any", metric),
            target_accuracy=target_accuracy,
            target=target,
            patience=patience,
            checkpoint_every=checkpoint_every,
            checkpoints=None if checkpoints is None else os.fspath(checkpoints),
        )
        task = VertexPrediction() if task is None else task
        self._single = SingleConfig(
            optimize=optimize, order=order, gathered=gathered, memory=memory, memory_limit=memory_limit, scratch=scratch
        )
        if not task.of_vertices:
            check_task(task, self._single, pipeline)
            # Programs run over rows of vertices, and the memory formulas cover vertex tasks only.
            self._single = self._single.model_copy(update={"optimize": False, "order": "given", "memory": "ignore"})
        check_pipeline(pipeline, data)
        check_together(self.options, self._single, pipeline)
        check_arguments(data, optimizer, observers)
        check_keep_checkpoints(keep_checkpoints)
        check_run_directory(self.options, run_directory, resume=resume)
        self._task = task
        examples = data if isinstance(data, ShardedData) else task.prepare(data)
        shapes = shapes_of(examples)
        objective = Objective.of(loss, shapes, metric)
        check_target(objective, self.options)
        check_stops(examples, self.options)
        check_metric_defined(objective, examples, pipeline)
        self.model = model
        self.data: Dataset | ShardedData = examples
        self.run_directory = None if run_directory is None else Path(run_directory)
        self._resume = resume
        self._keep_checkpoints = keep_checkpoints
        self._observers = tuple(observers)
        self._config: dict[str, Any] | None = None
        self._user_code: UserCode = {}
        self._kept_as: Path | None = None
        self._optimizer = optimizer
        self._pipeline = pipeline
        free = from_config.free_settings(pipeline)
        of_pipeline = {} if pipeline is None else pipeline.dotted()
        self._settings: dict[str, Any] = {
            "train.eval_every": eval_every,
            "single.optimize": optimize,
            **({} if gathered == "float32" else {"single.gathered": gathered}),
            **({} if objective.name == "cross_entropy" else {"train.loss": objective.name}),
            **({} if metric is None else {"train.metric": metric}),
            **({} if task.of_vertices else {"task": task.description}),
            **{key: value for key, value in of_pipeline.items() if key not in free},
        }
        self._parts = parts_of(
            model, shapes, params=params, rngs=(rngs,) if isinstance(rngs, str) else tuple(rngs), seed=seed
        )
        self._own = self._parts  # the user's model, before the task wraps it for training
        if not isinstance(examples, ShardedData):
            self._parts = task.wrap(self._parts, examples)
        if self._parts.switched_off:
            warnings.warn(f"{self._parts.name} {self._parts.switched_off}", UserWarning, stacklevel=2)
        self._functions = step_functions(self._parts.structure, optimizer, objective)
        checked = check_model(self._functions, self._parts, shapes)
        self._edge_ids = checked.edge_ids
        self._machine = OneMachine(
            self._functions,
            self._parts,
            examples,
            self._single,
            checked=checked,
            seed=seed,
            evaluates_only=pipeline is not None,
            scratch=self.run_directory,
        )
        self._trained: LoopState | None = None
        self._requests: StopRequests | None = None

    @property
    def stop_requested(self) -> bool:
        """Whether Ctrl-C or SIGTERM has arrived during the last `fit` with a run directory, also if `fit` has failed."""
        return self._requests is not None and self._requests.any

    @classmethod
    @user_line_noted()
    def from_config(
        cls,
        config: RunConfig,
        data: Dataset | ShardedData | None = None,
        *,
        run_directory: str | os.PathLike[str] | None = None,
        resume: bool = False,
        observers: Sequence[Observer] = (),
        keep_checkpoints: int = 2,
        kept_as: Path | None = None,
    ) -> Trainer:
        """Build the trainer that a resolved configuration describes.

        Args:
            config: The configuration; `train.seed` seeds parameters and dropout.
            data: The data set, as `prepare_data(config.data)` makes it (row-normalised if configured). None: it is loaded,
                or its shards are used (`pipeline.partition`).
            run_directory: As for `Trainer`; its config.yaml will hold the configuration.
            resume: As for `Trainer`.
            observers: As for `Trainer`.
            keep_checkpoints: As for `Trainer`.
            kept_as: Permanent path of the run directory, if `run_directory` is a working copy on another machine; the run's
                folder in `train.checkpoints` is named after this path.

        Raises:
            ValueError, OSError: As for `Trainer` and for loading data.
            InputError: The model or the optimizer is named by an untrusted folder.
        """
        loaded = data
        if loaded is None:
            loaded = from_config.shards_for(config) or from_config.prepare_data(config.data)
        trainer = cls(
            from_config.build_model(config, shapes_of(loaded)),
            loaded,
            task=make_task(config.task, config.data.split_seed),
            optimizer=from_config.build_optimizer(config),
            **{name: value for name, value in config.train.to_dict().items() if name != "recipe"},
            keep_checkpoints=keep_checkpoints,
            run_directory=run_directory,
            resume=resume,
            observers=observers,
            **config.single.to_dict(),
            pipeline=config.pipeline,
        )
        trainer._config = config.to_dict()
        trainer._settings = from_config.settings(config)
        trainer._user_code = from_config.user_code(config)
        trainer._kept_as = kept_as
        return trainer

    @user_line_noted()
    def fit(self, *, resume: bool | None = None, interactive: bool | None = None) -> TrainResult:
        """Train the model from its given parameters or, with `resume`, from the point where training stopped.

        Ctrl-C ends the run after the current epoch and saves a checkpoint, if there is a run directory. In a notebook or at
        Python's prompt, `fit` then returns the result so far, with `stopped="signal"`, and prints how to continue. In a
        program it raises KeyboardInterrupt (immediately if there is no run directory). With a run directory, SIGTERM and
        SIGHUP also end the run after the epoch, and `fit` returns; the caller decides whether the process ends. A second
        signal ends the run immediately, by KeyboardInterrupt or SystemExit; the newest checkpoint stays.

        Args:
            resume: Whether to continue from the newest whole checkpoint in the run directory, if there is one; without a run
                directory, from the last `fit` of this trainer. None: the constructor's `resume`.
            interactive: True: show a line with epoch, loss, accuracy and time left, on any output, and return the result so
                far on Ctrl-C. False: show nothing, and raise. None: show the line in a notebook and on a terminal, and
                return in a notebook and at Python's prompt.

        Warns:
            UserWarning: The model cannot be split, and trains as plain jit (once per trainer; an error with a pipeline). Or
                one of the user's source files has changed since the resumed run last ran it.

        Returns:
            The result of the run. An NNX model now holds the parameters of the best epoch.

        Raises:
            TrainingError: The loss or the outputs became NaN or infinite; the error's `result` holds the epochs before. Or
                there is no state to continue from.
            RunDirectoryError: The run directory belongs to something else, is in use by another process, has more epochs
                than `epochs`, or cannot be written.
            InputError: The checkpoint in the run directory belongs to another run.
            RunError: A checkpoint could not be written, none can be read, or training will need more memory than there is.
            InputError: `order="community"`, and the model cannot be split.
            SplitError, ConfigError: The pipeline cannot train this model on these data.
            GraphError: The data have no labels.
        """
        begun = time.perf_counter()
        check_trains(self.data)
        resumes = self._resume if resume is None else resume
        answers = is_interactive() if interactive is None else interactive
        fresh = self._fresh()
        files = None
        with contextlib.ExitStack() as stack:
            runner = self._runner()
            stack.callback(runner.close)
            if self.run_directory is not None:
                stack.enter_context(held(self.run_directory))
                free = from_config.free_settings(self._pipeline)
                directory = RunDirectory.claim(self.run_directory, self._written_config(), free=free, resume=resumes)
                files = self._files(directory, fresh)
                files.check(resume=resumes)
            # A program without a run directory saves no state, so signals keep their usual effect.
            requests = None
            if files is not None or answers:
                requests = stack.enter_context(StopRequests(terminate=files is not None))
            self._requests = requests
            loop = fresh
            if files is None and resumes:
                loop = self._left_in_memory()
            if files is not None and resumes:
                loop = files.restore(fresh, parts=not self._hosts_elsewhere) or fresh
            if not loop.diverged:
                loop.go_on(self.options)
            if files is not None:
                files.start(self._written_config(), loop)
            if loop.diverged:
                where = "this trainer's run" if files is None else f"the run in {self.run_directory}"
                raise TrainingError(
                    f"{where} diverged in epoch {loop.epochs} and cannot continue. Give a run with "
                    "other settings a directory of its own"
                )
            result = TrainingLoop(
                functions=self._functions,
                parts=self._parts,
                data=self.data,
                machine=self._machine,
                runner=runner,
                train=self.options,
                observers=self._watching(stack, interactive),
                files=files,
                requests=requests,
                trained=self._take,
                begun=begun,
            ).run(loop)
        if requests is not None:
            if answers and requests.interrupt and result.stopped == "signal":
                self._say_how_to_go_on(result)
            requests.pass_on(stopped=result.stopped == "signal", answered=answers)
        return result

    def _left_in_memory(self) -> LoopState:
        """Return a copy of the state after the last `fit`."""
        if self._trained is None:
            raise TrainingError("fit(resume=True) without run_directory goes on from a fit before, and there was none")
        if self._hosts_elsewhere:
            raise TrainingError("fit(resume=True) needs run_directory where pipeline.hosts are not inline")
        return self._trained.copy()

    def _watching(self, stack: contextlib.ExitStack, interactive: bool | None) -> Sequence[Observer]:
        """Return the observers, with a progress line added unless they include one or `interactive` is False."""
        if interactive is False or any(isinstance(one, ProgressBar) for one in self._observers):
            return self._observers
        bar = ProgressBar(f"{self._parts.name} on {self.data.name}", always=interactive is True)
        return (*self._observers, stack.enter_context(bar))

    def _say_how_to_go_on(self, result: TrainResult) -> None:
        later = (
            "" if self.run_directory is None else f", or later Trainer(…, run_directory={str(self.run_directory)!r})"
        )
        print_error(
            f"interrupted after {len(result.history)} of {self.options.epochs} epochs; this is the result so far. To go on: "
            f"fit(resume=True) of this trainer{later}"
        )

    @user_line_noted()
    def predict(self, epoch: Epoch = "best", *, graph: Any = None, x: Any = None, **inputs: Any) -> Any:
        """Return the model's outputs for every vertex, from an exact forward pass without dropout.

        Before any `fit` in this process, uses the newest whole checkpoint in the run directory. Its run must have the same
        model and kind of optimizer; the data may differ if they have as many features and classes.

        Args:
            epoch: Parameters to use: of the "best" epoch (`TrainResult.best_epoch`) or of the "last".
            graph: Graph to predict on instead of the data; see `TrainResult.predict`.
            x: Features of `graph`.
            inputs: Further inputs of `graph`, keyed by name.

        Returns:
            The model's return value as NumPy arrays (logits `[V, C]`), floating-point ones as float32. Row i belongs to row
            i of `data`, as in `model(data.graph, data.features)`, or to row i of `graph`.

        Raises:
            ValueError: `epoch` is neither "best" nor "last", or the inputs do not fit the model.
            TrainingError: There are no trained parameters.
            RunDirectoryError, RunError, InputError: As for `fit`.
            RunError: A file of the data has changed since it was loaded.
        """
        params, state = self._chosen(epoch)
        if graph is not None or x is not None or inputs:
            if graph is None or x is None:
                raise ValueError("predict(graph=…, x=…) needs both; without them it predicts on the data it trains on")
            return self._with(params, state).predict(graph, x, **inputs)
        if not isinstance(self.data, ShardedData):
            outputs = self._machine.outputs(params, state)
            check_unchanged(*arrays_of(self.data))
            return outputs
        with contextlib.closing(self._pipeline_runner()) as runner:
            return runner.outputs(params, state)

    @user_line_noted()
    def rows(self, epoch: Epoch = "best") -> Any:
        """Return the model's own outputs for the vertices, before the task's head (for links, the rows that give scores).

        Args:
            epoch: As for `predict`.

        Returns:
            NumPy arrays `[V, …]`: row i for vertex i.

        Raises:
            ValueError, TrainingError, RunDirectoryError, RunError: As for `predict`.
        """
        data = self.data
        if self._task.of_vertices or isinstance(data, ShardedData):
            return self.predict(epoch)
        inputs = further_inputs(data, self._own.keywords)
        return self._with(*self._chosen(epoch)).predict(data.graph, data.features, **inputs)

    @user_line_noted()
    def intermediates(
        self, epoch: Epoch = "best", *, graph: Any = None, x: Any = None, **inputs: Any
    ) -> dict[str, np.ndarray]:
        """Return the outputs of the model's layers: hidden rows, attention coefficients; see `TrainResult.intermediates`.

        Args:
            epoch: As for `predict`.
            graph: As for `predict`.
            x: As for `predict`.
            inputs: As for `predict`.

        Raises:
            TypeError: The model is a function without layers.
            ValueError, TrainingError, RunDirectoryError, RunError: As for `predict`.
        """
        trained = self._with(*self._chosen(epoch))
        if graph is not None or x is not None or inputs:
            return trained.intermediates(graph, x, **inputs)
        if isinstance(self.data, ShardedData):
            raise ValueError(f"{self.data.name} is here in shards alone: give intermediates(graph=…, x=…)")
        data = self.data
        return trained.intermediates(data.graph, data.features, **further_inputs(data, self._own.keywords))

    @user_line_noted()
    def export(self, path: str | os.PathLike[str], epoch: Epoch = "best") -> None:
        """Write the model as a file that needs only JAX and NumPy to run; see `TrainResult.export`.

        Args:
            path: Path of the file.
            epoch: As for `predict`.

        Raises:
            InputError, OSError: As for `TrainResult.export`.
            ValueError, TrainingError, RunDirectoryError, RunError: As for `predict`.
        """
        self._with(*self._chosen(epoch)).export(path)

    def _chosen(self, epoch: Epoch) -> tuple[Tree, Tree]:
        """Return parameters and carried state of an epoch, restored from the run directory before any training."""
        if epoch not in ("best", "last"):
            raise ValueError(f'epoch must be "best" or "last", got {epoch!r}')
        if self._trained is None and self.run_directory is not None:
            fresh = self._fresh()
            files = self._files(RunDirectory.open(self.run_directory), fresh)
            self._trained = files.restore(fresh, to_predict=True)
        if self._trained is None:
            raise TrainingError("there are no trained parameters: call fit() first, or give a run with a checkpoint")
        loop = self._trained
        return loop.chosen if epoch == "best" else (loop.params, loop.state)

    def _with(self, params: Tree, state: Tree) -> TrainedModel:
        """Return the model with copies of an epoch's parameters and carried state."""
        spec = InputSpec.of(self._own, shapes_of(self.data))
        params, state = to_host((params, state))
        prepared = {} if self._config is None else self._config["data"]
        return TrainedModel(
            self._own,
            params,
            state,
            spec=spec,
            edge_ids=self._edge_ids,
            data=self.data.name,
            row_normalise=prepared.get("row_normalise", False),
        )

    def __repr__(self) -> str:
        parts = [f"{self._parts.name} on {self.data.name}", f"{self.options.epochs} epochs at most"]
        pipeline = self._pipeline
        if pipeline is None:
            parts.append("on one machine")
        else:
            parts.append(f"{pipeline.mode} on {pipeline.servers} servers with {pipeline.intervals} intervals")
        if self.run_directory is not None:
            parts.append(f"in {self.run_directory}")
        parts.append("not trained yet" if self._trained is None else f"{self._trained.epochs} epochs trained")
        return f"Trainer({', '.join(parts)})"

    def _runner(self) -> EpochRunner:
        """Create the runner that trains the epochs."""
        machine = self._machine
        if self._pipeline is not None:
            _ = machine.order  # raises InputError before anything runs
            return self._pipeline_runner()
        gradient, seconds = machine.choose_gradient()
        machine.decide()
        _ = machine.order
        if machine.streamed is not None:
            return machine.streamed
        return SingleRunner(
            self._functions,
            gradient,
            self._parts.streams,
            seed=self.options.seed,
            trace_seconds=seconds,
            redraw=self._redraw,
        )

    def _redraw(self, epoch: int) -> Mapping[str, np.ndarray]:
        """Return the model inputs that the task draws again for this epoch."""
        assert not isinstance(self.data, ShardedData)  # only hosts train on shards
        return self._task.redraw(self.data, self.options.seed, epoch)

    @property
    def _hosts_elsewhere(self) -> bool:
        """Whether hosts read and write their own parts of checkpoints."""
        return self._pipeline is not None and self._pipeline.hosts != "inline"

    def _pipeline_runner(self) -> PipelineRunner:
        assert self._pipeline is not None
        run = None if self.run_directory is None else RunDirectory(self.run_directory)
        runner = PipelineRunner(
            self._parts,
            self.data,
            self._optimizer,
            self._pipeline,
            self.options,
            objective=self._functions.objective,
            trace=None if run is None else run.trace_path,
            checkpoints=None if run is None else Places.of(run, self.options.checkpoints, self._kept_as).place,
        )
        if self._single.memory == "check" and self._hosts_elsewhere:
            runner.check_memory()
        return runner

    def _take(self, loop: LoopState, params: Tree, state: Tree) -> TrainedModel:
        """Keep the trained state for `predict`, update an NNX model, and return the model of the best epoch."""
        self._trained = loop
        if isinstance(self.model, nnx.Module):
            put_back(self.model, params, state)
        return self._with(params, state)

    def _fresh(self) -> LoopState:
        parts = self._parts
        start, seconds = self._functions.start.prepare(parts.params, parts.state)
        params, opt_state, state = start(parts.params, parts.state)
        loop = LoopState(params, opt_state, state, best_params=parts.params, best_state=parts.state)
        loop.spend("compile", seconds)
        return loop

    def _files(self, directory: RunDirectory, fresh: LoopState) -> RunFiles:
        # The order is noted only if it changes numbers, so that a resumed run may name the same order differently.
        order: dict[str, Any] = {} if self._machine.order == "given" else {"single.order": self._machine.order}
        if self._machine.streamed is not None:
            order = {"single.streamed": True}
        described = describe_run(
            self._parts, fresh.opt_state, self.data, seed=self.options.seed, settings=self._settings | order
        )
        return RunFiles(
            directory,
            described,
            checkpoints=self.options.checkpoints,
            kept_as=self._kept_as,
            user_code=self._user_code,
            keep=self._keep_checkpoints,
        )

    def _written_config(self) -> dict[str, Any]:
        """Return the content of config.yaml, which for a model and optimizer made in Python is a partial configuration."""
        if self._config is not None:
            return self._config
        objective = self._functions.objective
        config: dict[str, Any] = {
            "data": {"name": self.data.name},
            "model": {"class": self._parts.name},
            "train": {
                "seed": self.options.seed,
                "eval_every": self.options.eval_every,
                **({} if objective.name == "cross_entropy" else {"loss": objective.name}),
                **({} if self.options.metric is None else {"metric": self.options.metric}),
                **({} if self.options.checkpoints is None else {"checkpoints": self.options.checkpoints}),
            },
            "single": self._single.to_dict(),
        }
        if self._pipeline is not None:
            config |= {part.section: part.to_dict() for part in self._pipeline.sections}
        return config
