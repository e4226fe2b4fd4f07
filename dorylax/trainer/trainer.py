"""`Trainer`: the whole graph, trained epoch by epoch, on one machine or by a pipeline.

What users call: arguments, `fit`, `predict`. The order of things in a run is `loop`'s, what trains an epoch is one of
`runners`, what one machine computes with is in `one_machine`, its mathematics in `step`, numbers and definitions in
`dorylax.runs.result`, and what goes into the run's directory in `saving`.
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
from dorylax.graph.task_data import TaskData
from dorylax.observers.base import Observer
from dorylax.observers.progress import ProgressBar
from dorylax.pipeline.config import PipelineConfig
from dorylax.program.model.base import Tree
from dorylax.program.model.flax_nnx import put_back
from dorylax.runs.directory import RunDirectory, held
from dorylax.runs.environment import UserCode
from dorylax.runs.result import TrainingError, TrainResult
from dorylax.tasks.base import Task
from dorylax.tasks.catalogue import make_task
from dorylax.tasks.vertices import VertexPrediction
from dorylax.terminal.output import print_error
from dorylax.terminal.session import is_interactive
from dorylax.trainer import from_config
from dorylax.trainer.loop import TrainingLoop
from dorylax.trainer.loop_state import LoopState, to_host
from dorylax.trainer.model_parts import further_inputs, parts_of
from dorylax.trainer.one_machine import OneMachine
from dorylax.trainer.options import free_settings
from dorylax.trainer.runners.base import EpochRunner
from dorylax.trainer.runners.pipelined import PipelineRunner
from dorylax.trainer.runners.single import SingleRunner
from dorylax.trainer.runners.streamed import StreamedRunner
from dorylax.trainer.saving.description import describe_run
from dorylax.trainer.saving.places import Places
from dorylax.trainer.saving.run_files import RunFiles
from dorylax.trainer.signals import StopRequests
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
"""Which parameters to predict with: of the epoch that the run is judged by, or of the last."""


@final
class Trainer:
    """Trains a model on a graph.

    The step of an epoch is one jitted function: forward pass with dropout, mean loss over the training vertices,
    gradient, optimizer update. Loss and gradient are those of the optimised program (`dorylax.program`); a
    model that cannot be split into graph tasks and stages trains as plain jit, with one warning that says why.
    Randomness is a function of (the model's streams, seed, epoch, row id), so a run that was interrupted and resumed
    gives bit for bit what it would have given.

    With `pipeline`, servers and intervals train instead (`dorylax.pipeline`), and everything else stays the same. Its
    epoch is over when the slowest interval has finished it, and the newest weights are then evaluated. On the virtual
    clock, training seconds are simulated.

    Arguments are checked at once; nothing is computed or written before `fit`.

    Args:
        model: a Flax NNX or Linen module, called as `model(graph, features [V, F]) -> logits [V, C]`, or a function
            `f(params, graph, features)`. Further inputs of the data reach it by name, as keywords that its signature has
            (all of them where it takes `**kwargs`). An NNX module trains with the flags that its layers have: what is
            frozen stays frozen; `fit` leaves the best epoch's parameters in it. Those of other models are in the result.
        data: the data set; or, with `pipeline.hosts` other than inline, where its shards are (`dorylax partition --out`), so
            that this process holds no graph.
        loss: what is minimised, as the mean over the training vertices: "cross_entropy" of classes; "mse" (the default of
            targets), "mae" or "huber" of targets; or a function `(output, labels) -> [V]`, where the output may be whatever
            the model returns.
        metric: what evaluations report and the best epoch is chosen by, one of `dorylax.runs.metric.METRICS`; None: the
            accuracy, micro-F1 where a vertex may have several classes, and the loss where that is not the cross-entropy.
        task: what is learnt (`dorylax.tasks`); None: something of each vertex. What is said below about vertices is then
            meant of the task's examples.
        params: a function's parameters; of a Linen module its parameters or variables (by default `module.init` with
            `seed` makes them).
        rngs: names of a Linen module's random streams.
        optimizer: any optax transformation; the parameters are nested dicts of arrays. Weight decay is its business.
        epochs: how many at most, ≥ 1.
        seed: of dropout, and of a Linen module's parameters, in 0 … 2³¹-1. (Others are the model's.)
        eval_every: epochs between evaluations; the last epoch is always evaluated.
        target_accuracy: stop when the validation accuracy (a fraction) reaches this; None: never.
        target: stop when the metric on the validation vertices is this good, be that higher or lower; None: never.
        patience: stop when so many epochs have passed since the best validation metric; None: never.
        checkpoint_every: epochs between checkpoints; 0: only on a signal and at the end.
        checkpoints: where they go: a path or `s3://bucket/prefix`, there below a name that the run directory's path gives;
            None: into the run directory.
        keep_checkpoints: how many of the newest checkpoints stay.
        run_directory: where to leave configuration, metrics, summary and checkpoints; None: nowhere.
        resume: go on from the newest whole checkpoint in the run directory, if there is one.
        observers: told about each epoch; see `Observer`.
        optimize: train with the optimised program; False: plain `jax.value_and_grad` of the model, the reference.
        order: of vertices in memory, for the step of one machine and for evaluations: "given", "community", or "auto"
            (`vertex_order.effective_order`). Results are in the order of `data` all the same. A model that cannot be split
            may hold rows in that order, and always trains in it.
        gathered: how an epoch stores the rows that it sums over neighbours: "float32", or "bfloat16", which are half the
            bytes to read and rounded (`program.single.narrow`). What is computed once, evaluations and `predict` are exact.
        memory: "check": a run that will need more memory than there is streams its data from disk, or is refused where that
            cannot be (`OneMachine.streamed`); "stream": a run streams even where it fits, so that it gives the same bits
            whatever memory there is; "ignore": try. Of one machine's step only.
        memory_limit: memory that the run may use, as "8GiB"; None: what the machine or its control group has.
        scratch: a folder for the files of a run that streams; None: the run directory, or else the system's
            temporary folder.
        pipeline: how training is spread over servers and intervals; None: one machine, one jitted step per epoch.

    Raises:
        ValueError: an argument out of range, arguments that exclude each other, a task, loss or metric that is not for these
            data, a model whose output is not `[V, C]` or whose loss not `[V]`, or that needs an input which the data lack.
        TypeError: an argument of the wrong kind.
        Exception: what the model itself raises, with a note that names its line.

    Warns:
        UserWarning: the model is in evaluation mode as a whole: it trains so.
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
            # A program is made of rows of vertices, and formulas of memory know no other examples.
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
        self.data: Dataset | TaskData | ShardedData = examples
        self.run_directory = None if run_directory is None else Path(run_directory)
        self._resume = resume
        self._keep_checkpoints = keep_checkpoints
        self._observers = tuple(observers)
        self._config: dict[str, Any] | None = None
        self._user_code: UserCode = {}
        self._kept_as: Path | None = None
        self._optimizer = optimizer
        self._pipeline = pipeline
        free = free_settings(pipeline)
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
        self._own = self._parts  # what the user's model gives, whatever is made of that to train it
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
            evaluates_only=pipeline is not None,
            scratch=self.run_directory,
        )
        self._trained: LoopState | None = None

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
        """The trainer that a resolved configuration describes.

        Args:
            config: the configuration; parameters and dropout come from `train.seed`.
            data: the data set, if it is already there, as `prepare_data(config.data)` makes it (row-normalised if the
                configuration says so); by default it is loaded, unless hosts have its shards (`pipeline.partition`).
            run_directory: as for `Trainer`; its config.yaml will hold the configuration.
            resume: as for `Trainer`.
            observers: as for `Trainer`.
            keep_checkpoints: as for `Trainer`.
            kept_as: where the run directory is kept, if `run_directory` is a copy to work in, on another machine: by this
                path the run is known in `train.checkpoints`.

        Raises:
            ValueError, OSError: as `Trainer` and loading data do.
            UntrustedCodeError: a folder names the model or the optimizer, and is not trusted.
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
        """Trains, from the model as it was given or, with `resume`, from where it was stopped.

        Ctrl-C ends the current epoch and saves a checkpoint, if there is a run directory. In a notebook or at Python's
        prompt `fit` then gives what there is, `stopped="signal"`, and says how to go on; in a program KeyboardInterrupt is
        raised (without a run directory at once). With a run directory, SIGTERM or SIGHUP does the same and returns (the
        caller decides whether the process ends). A second signal ends the run at once, by KeyboardInterrupt or SystemExit,
        and the newest checkpoint stays.

        Args:
            resume: go on from the newest whole checkpoint in the run directory, if there is one; without a run directory
                from what the last `fit` of this trainer has left. None: as the trainer was made.
            interactive: whether somebody looks on. True: show a line with epoch, loss, accuracy and the time left,
                wherever the output goes, and answer Ctrl-C with what there is. False: show nothing, and raise. None: show
                it in a notebook and on a terminal, and answer in a notebook and at Python's prompt.

        Warns:
            UserWarning: the model cannot be split, and trains as plain jit; once for a trainer. With a pipeline it is an
                error. Or a file of the user's own code has changed since the run that is resumed last ran it.

        Returns:
            What the run reached; the model now holds the parameters of the best epoch.

        Raises:
            TrainingError: the loss or the outputs became NaN or infinite; its `result` has what was reached before. Or there
                is nothing to go on from.
            RunDirectoryError: the run directory belongs to something else, is in use by another process, has more epochs
                than asked for, or cannot be written.
            CheckpointError: a checkpoint could not be written, none of those there can be read, or the one there is
                belongs to another run.
            MemoryLimitError: training will need more memory than there is.
            OrderError: `order="community"`, and the model cannot be split.
            SplitError, ConfigError: the pipeline cannot train this model on these data.
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
                files = RunFiles.create(
                    self.run_directory,
                    self._written_config(),
                    self._describe(fresh),
                    checkpoints=self.options.checkpoints,
                    kept_as=self._kept_as,
                    user_code=self._user_code,
                    free=free_settings(self._pipeline),
                    keep=self._keep_checkpoints,
                    resume=resumes,
                )
            # In a program without a run directory there is nothing to save first, and signals should end it as ever.
            requests = None
            if files is not None or answers:
                requests = stack.enter_context(StopRequests(terminate=files is not None))
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
        """What the last `fit` has left, to go on from."""
        if self._trained is None:
            raise TrainingError("fit(resume=True) without run_directory goes on from a fit before, and there was none")
        if self._hosts_elsewhere:
            raise TrainingError("fit(resume=True) needs run_directory where pipeline.hosts are not inline")
        return self._trained.copy()

    def _watching(self, stack: contextlib.ExitStack, interactive: bool | None) -> Sequence[Observer]:
        """The observers, and a progress line where somebody sees it who has not brought one."""
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
        """The model's outputs for every vertex, by an exact forward without dropout.

        Before any `fit` in this process, the newest whole checkpoint in the run directory is used. Its run must have
        the same model and kind of optimizer; the data may be others with as many features and classes.

        Args:
            epoch: with the parameters of the "best" epoch (`TrainResult.best_epoch`) or of the "last".
            graph: predict on this graph, and not on the data; see `TrainResult.predict`.
            x: its features.
            inputs: its further inputs, by name.

        Returns:
            What the model returns, NumPy arrays (logits `[V, C]`), floating ones as float32: row i for row i of `data`, as
            `model(data.graph, data.features)` gives them; or for row i of `graph`.

        Raises:
            ValueError: another `epoch`, or inputs that do not fit the model.
            TrainingError: nothing is trained yet.
            RunDirectoryError, CheckpointError: as `fit`.
            ChangedFileError: a file of the data has changed since it was loaded.
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
        """What the model itself gives for the vertices, before the task's head: of links the rows that make the scores.

        Args:
            epoch: as of `predict`.

        Returns:
            NumPy arrays `[V, …]`: row i for vertex i.

        Raises:
            ValueError, TrainingError, RunDirectoryError, CheckpointError: as `predict`.
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
        """What the model's layers give: hidden rows, attention coefficients; see `TrainResult.intermediates`.

        Args:
            epoch: as of `predict`.
            graph: as of `predict`.
            x: as of `predict`.
            inputs: as of `predict`.

        Raises:
            TypeError: the model is a function, which has no layers.
            ValueError, TrainingError, RunDirectoryError, CheckpointError: as `predict`.
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
        """Writes the model as a file that runs where only JAX and NumPy are; see `TrainResult.export`.

        Args:
            path: of the file.
            epoch: as of `predict`.

        Raises:
            ExportError, OSError: as `TrainResult.export`.
            ValueError, TrainingError, RunDirectoryError, CheckpointError: as `predict`.
        """
        self._with(*self._chosen(epoch)).export(path)

    def _chosen(self, epoch: Epoch) -> tuple[Tree, Tree]:
        """Parameters and carried state of an epoch; from the run directory where nothing is trained here."""
        if epoch not in ("best", "last"):
            raise ValueError(f'epoch must be "best" or "last", got {epoch!r}')
        if self._trained is None and self.run_directory is not None:
            fresh = self._fresh()
            directory = RunDirectory.open(self.run_directory)
            files = RunFiles(
                directory,
                self._describe(fresh),
                places=Places.of(directory, self.options.checkpoints, self._kept_as),
                user_code=self._user_code,
            )
            self._trained = files.restore(fresh, to_predict=True)
        if self._trained is None:
            raise TrainingError("there are no trained parameters: call fit() first, or give a run with a checkpoint")
        loop = self._trained
        return loop.chosen if epoch == "best" else (loop.params, loop.state)

    def _with(self, params: Tree, state: Tree) -> TrainedModel:
        """The model with values of an epoch, which are copied."""
        spec = InputSpec.of(self._own, shapes_of(self.data))
        host = to_host((params, state))
        prepared = {} if self._config is None else self._config["data"]
        return TrainedModel(
            self._own,
            *host,
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
        """What trains the epochs."""
        machine = self._machine
        if self._pipeline is not None:
            _ = machine.order  # an order that cannot be is refused before anything runs
            return self._pipeline_runner()
        gradient, seconds = machine.choose_gradient()
        machine.decide()
        _ = machine.order
        if machine.streamed is not None:
            return StreamedRunner(self._functions, machine.streamed, self._parts.streams, seed=self.options.seed)
        return SingleRunner(
            self._functions,
            gradient,
            self._parts.streams,
            seed=self.options.seed,
            trace_seconds=seconds,
            redraw=self._redraw,
        )

    def _redraw(self, epoch: int) -> Mapping[str, np.ndarray]:
        """Inputs of the model that are others in this epoch."""
        assert not isinstance(self.data, ShardedData)  # hosts train those
        return self._task.redraw(self.data, self.options.seed, epoch)

    @property
    def _hosts_elsewhere(self) -> bool:
        """Whether hosts read and write what checkpoints hold of them."""
        return self._pipeline is not None and self._pipeline.hosts != "inline"

    def _pipeline_runner(self) -> PipelineRunner:
        assert self._pipeline is not None
        assert not isinstance(self.data, TaskData)  # refused with a pipeline
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
        """A state that was trained, with the values of the best epoch on the host: for `predict` and the user's model."""
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

    def _describe(self, fresh: LoopState) -> dict[str, Any]:
        # Only where it changes numbers, so that a run may be continued with the same order under another name.
        order: dict[str, Any] = {} if self._machine.order == "given" else {"single.order": self._machine.order}
        if self._machine.streamed is not None:
            order = {"single.streamed": True}
        return describe_run(
            self._parts, fresh.opt_state, self.data, seed=self.options.seed, settings=self._settings | order
        )

    def _written_config(self) -> dict[str, Any]:
        """For config.yaml. A model and an optimizer made in Python have no configuration, but this much can be said."""
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
