"""What training hands back: one record per epoch, the result of a run, and the error that ends a run.

Plain data without JAX arrays on a device; nothing here trains. The definitions of the reported numbers live here and
nowhere else: `best_epoch`, `TrainResult.test_accuracy`, `final_loss`, `seconds_per_epoch`.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, final, runtime_checkable

from dorylax.errors import DorylaxError
from dorylax.runs.convergence import still_falling
from dorylax.runs.metric import ACCURACIES, METRICS

Stopped = Literal["epochs", "target", "patience", "signal", "diverged"]
Mask = Literal["train", "val", "test"]
_EVALUATED_LOSSES = ("train_loss", "val_loss", "test_loss")
_SCORES = ("metric", "train_score", "val_score", "test_score")


@final
@dataclasses.dataclass(frozen=True)
class EpochRecord:
    """One epoch.

    Attributes:
        epoch: counted from 0.
        loss: masked training loss, without penalty, before the update of this epoch.
        train_accuracy: of the exact forward without dropout after the update, as a fraction (micro-F1 for multi-label
            data); None where the epoch was not evaluated, and where runs are judged by anything else.
        val_accuracy: likewise; None also where the validation mask is empty.
        test_accuracy: likewise.
        seconds: time of training alone, without evaluation, checkpoint and compilation; wall time, but on a pipeline's
            virtual clock simulated time.
        dollars: US dollars that the run has cost up to its end; None where it costs nothing.
        train_loss: mean loss over the training vertices of the exact forward without dropout after the update; None where
            the epoch was not evaluated, and where runs are judged by anything else.
        val_loss: likewise; None also where the validation mask is empty.
        test_loss: likewise.
        metric: which one the scores are of; None where the epoch was not evaluated, and where runs are judged by accuracy or
            loss.
        train_score: the metric on the training examples, by the exact forward without dropout after the update.
        val_score: likewise; None also where the validation mask is empty.
        test_score: likewise.
    """

    epoch: int
    loss: float
    train_accuracy: float | None
    val_accuracy: float | None
    test_accuracy: float | None
    seconds: float
    dollars: float | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    test_loss: float | None = None
    metric: str | None = None
    train_score: float | None = None
    val_score: float | None = None
    test_score: float | None = None

    @classmethod
    def judged(
        cls,
        epoch: int,
        loss: float,
        scores: Sequence[float | None],
        metric: str,
        *,
        seconds: float,
        dollars: float | None = None,
    ) -> EpochRecord:
        """An epoch with what an evaluation gave for the three masks; None for all where there was none."""
        train, val, test = scores
        if metric in ACCURACIES:
            return cls(epoch, loss, train, val, test, seconds, dollars)
        record = cls(epoch, loss, None, None, None, seconds, dollars)
        if metric == "loss":
            return dataclasses.replace(record, train_loss=train, val_loss=val, test_loss=test)
        judge = None if train is None else metric
        return dataclasses.replace(record, metric=judge, train_score=train, val_score=val, test_score=test)

    def score(self, mask: Mask) -> float | None:
        """What the epoch is judged by, whichever metric it is; None without an evaluation, and where the mask is empty."""
        kind = "loss" if self.train_loss is not None else "accuracy" if self.metric is None else "score"
        value: float | None = getattr(self, f"{mask}_{kind}")
        return value

    @property
    def judge(self) -> str:
        """The name of what `score` gives; "accuracy" may be micro-F1, and stands for nothing without an evaluation."""
        return self.metric or ("accuracy" if self.train_loss is None else "loss")

    def unevaluated(self) -> EpochRecord:
        """The same epoch without its evaluation."""
        return EpochRecord(self.epoch, self.loss, None, None, None, self.seconds, self.dollars)

    @property
    def evaluated(self) -> bool:
        """Whether this epoch ended with an evaluation (the training mask is never empty)."""
        return self.score("train") is not None

    @property
    def validated(self) -> bool:
        """Whether there is a number to choose an epoch by."""
        return self.score("val") is not None

    def to_dict(self) -> dict[str, Any]:
        """The fields, in order, as JSON may carry them; `dollars`, losses and scores only where there are some."""
        left_out = {"dollars"} if self.dollars is None else set()
        left_out |= set(_EVALUATED_LOSSES) if self.train_loss is None else set()
        left_out |= set(_SCORES) if self.metric is None else set()
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in left_out}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EpochRecord:
        """Inverse of `to_dict`; a missing or unknown field is a ValueError."""
        names = {field.name for field in dataclasses.fields(cls)}
        absent = {name for group in (_EVALUATED_LOSSES, _SCORES) if group[0] not in fields for name in group}
        if {*fields, "dollars", *absent} != names:
            raise ValueError(f"an epoch's record has the fields {sorted(names)}, got {sorted(fields)}")
        return cls(**fields)


@final
@dataclasses.dataclass(frozen=True)
class Timings:
    """Where a run's time went, in seconds, summed over all its processes if it was resumed.

    Real time, but for `train` of a pipeline on the virtual clock, which is simulated.

    Attributes:
        compile: tracing the model, splitting it, compiling, ordering and partitioning the graph.
        train: the epochs' steps, and what is computed once because it is the same in all of them.
        evaluate: evaluations.
        checkpoint: writing checkpoints.
        wall: of `Trainer.fit` in the process that ended the run; real time on any clock.
    """

    compile: float = 0.0
    train: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    wall: float = 0.0


def improves(record: EpochRecord, best: EpochRecord | None) -> bool:
    """Whether an epoch takes over as the best so far; see `best_epoch`."""
    if not record.evaluated:
        return False
    value, other = record.score("val"), None if best is None else best.score("val")
    return value is None or other is None or METRICS[record.judge].better(value, other)


def best_epoch(history: Sequence[EpochRecord]) -> int | None:
    """The epoch that the run is judged by.

    Returns:
        The epoch of the best validation score, highest or lowest as the metric has it, the earliest of equals; where the
        validation mask is empty, the last evaluated epoch; None before any evaluation.
    """
    best: EpochRecord | None = None
    for record in history:
        if improves(record, best):
            best = record
    return None if best is None else best.epoch


@runtime_checkable
class Trained(Protocol):
    """A model with trained parameters, as `TrainResult` uses it; its methods are documented there."""

    def bound(self) -> Any:
        """The user's model with them."""
        ...

    def predict(self, graph: Any, x: Any, **inputs: Any) -> Any:
        """Its outputs."""
        ...

    def intermediates(self, graph: Any, x: Any, **inputs: Any) -> dict[str, Any]:
        """What its layers give."""
        ...

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes it."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class TrainResult:
    """A run that has ended.

    Attributes:
        history: one record per epoch, from epoch 0 also where the run was resumed.
        params: parameters after `best_epoch`, nested dict of NumPy arrays (those of `Trainer.predict`); the last ones
            where no epoch was evaluated.
        last_params: parameters after the last epoch, likewise.
        best_epoch: see `best_epoch` in this module.
        stopped: why the run ended: all "epochs" done, the "target" accuracy reached, "patience" exhausted, a "signal"
            (SIGTERM) asked for it, or it "diverged" (only inside a `TrainingError`).
        timings: seconds of compilation, training, evaluation and checkpoints.
        metric: what the run is judged by, one of `METRICS`. Accuracies are micro-F1 where it is "micro_f1", and None where
            it is neither of the two; losses are there if it is "loss", scores if it is any other.
        first_epoch: the epoch that this process began with; 0 unless resumed.
        passes: of the optimised program whose step was trained with; None where it was plain `jax.value_and_grad`.
        pipeline: mode, staleness, servers, intervals and counters of the pipeline that trained; None where none did.
        state: what the model keeps besides parameters (running statistics), after `best_epoch`; of a Linen module the
            other collections: `module.apply({"params": result.params, **result.state}, …)`.
        trained: what predicts with `params` and `state`; None where only numbers are known.
    """

    history: list[EpochRecord]
    params: Any
    last_params: Any
    best_epoch: int | None
    stopped: Stopped
    timings: Timings
    metric: str = "accuracy"
    first_epoch: int = 0
    passes: tuple[str, ...] | None = None
    pipeline: dict[str, Any] | None = None
    state: Any = None
    trained: Trained | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def model(self) -> Any:
        """The model with the parameters and the carried state of the best epoch, without dropout; a new object each time.

        A Flax NNX module after `eval()`, called as `model(graph, x)` wherever Flax is; of a Linen module what
        `module.bind` gives, of a function its `functools.partial`.
        """
        return self._there.bound()

    def predict(self, graph: Any, x: Any, **inputs: Any) -> Any:
        """What `model(graph, x)` gives, on any graph: an exact forward without dropout, compiled once per graph's size.

        Args:
            graph: a `dorylax.Graph`, V vertices.
            x: features `[V, F]`, prepared as those of the training data were (`Dataset.row_normalised`, say).
            inputs: the further inputs that the model was trained with, by name; those per edge may have come with the graph.

        Returns:
            What the model returns, NumPy arrays, floating ones as float32; row i for row i of the graph.

        Raises:
            ValueError: another number of features, or an input that the model was not trained with, or lacks.
        """
        return self._there.predict(graph, x, **inputs)

    def intermediates(self, graph: Any, x: Any, **inputs: Any) -> dict[str, Any]:
        """What the model's layers give in such a pass: hidden rows, attention coefficients.

        Args:
            graph: as of `predict`.
            x: likewise.
            inputs: likewise.

        Returns:
            Arrays by name, sorted. `convs.0` is what `model.convs[0]` returned, `output` what the model did;
            `convs.0.attention` is what that layer sowed (`nnx.Intermediate`) under the name. Several of a name are numbered,
            `skeleton.hidden.0`. Rows are vertices or edges in the order of the graph and its edge ids.

        Raises:
            ValueError: as `predict`.
            TypeError: the model is a function, which has no layers.
        """
        return self._there.intermediates(graph, x, **inputs)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as one file that runs where only JAX and NumPy are, on graphs of any size.

        `python FILE INPUT.npz OUTPUT` runs it, or `runpy.run_path(FILE)["Model"]()` in Python, called as
        `(edge_index [2, E], x [V, F])`. It gives what `predict` gives, to rounding; if a configuration has row-normalised
        the features that were trained on, it does so itself.

        Args:
            path: of the file.

        Raises:
            InputError: the model does what depends on the numbers of vertices and edges, or computes in 64 bits.
            OSError: the file cannot be written; the one that may have been there stays.
        """
        self._there.export(path)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: numbers and parameters, without what this process has compiled."""
        return {**self.__dict__, "trained": None}

    @property
    def _there(self) -> Trained:
        if self.trained is None:
            raise TrainingError("this result has numbers alone: Trainer(…, run_directory=…) has the run's model")
        return self.trained

    def frame(self) -> Any:
        """The history as a pandas frame: a row per epoch, a column for each field of `EpochRecord` that any epoch has.

        `time` are the training seconds up to the epoch's end. Values that are missing are NaN. `dorylax.experiments.load`
        gives such frames of whole sweeps.
        """
        import pandas  # type: ignore[import-untyped]

        from dorylax.runs.curves import columns_of

        whole = pandas.DataFrame(columns_of(EpochRecord, [self.history]))
        return whole.dropna(axis="columns", how="all") if self.history else whole

    def plot(self) -> Any:
        """Loss and accuracies (or evaluated losses) by epoch, and which was best: a Matplotlib figure."""
        from dorylax.runs.curves import plot

        return plot(self.history, self.best_epoch, METRICS[self.metric])

    def __repr__(self) -> str:
        fields = {name: value for name, value in self.summary().items() if isinstance(value, str | int | float)}
        shown = {name: f"{value:.4g}" if isinstance(value, float) else repr(value) for name, value in fields.items()}
        return f"TrainResult({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def val_accuracy(self) -> float | None:
        """Validation accuracy at the best epoch, a fraction; None where the mask is empty, or the metric is another one."""
        return self._at_best("val_accuracy")

    @property
    def test_accuracy(self) -> float | None:
        """Test accuracy at the epoch of best validation, a fraction; None where the mask is empty, or for another metric."""
        return self._at_best("test_accuracy")

    @property
    def val_loss(self) -> float | None:
        """Mean loss over the validation vertices at the best epoch; None where the metric is another one."""
        return self._at_best("val_loss")

    @property
    def test_loss(self) -> float | None:
        """Mean loss over the test vertices at the epoch of best validation; None where the metric is another one."""
        return self._at_best("test_loss")

    @property
    def val_score(self) -> float | None:
        """The metric, whichever it is, on the validation examples at the best epoch; None where there are none."""
        return None if self.best_epoch is None else self.history[self.best_epoch].score("val")

    @property
    def test_score(self) -> float | None:
        """The metric, whichever it is, on the test examples at the epoch of best validation; None where there are none."""
        return None if self.best_epoch is None else self.history[self.best_epoch].score("test")

    @property
    def final_loss(self) -> float | None:
        """The last epoch's masked training loss, without penalty, before its update; None before any epoch."""
        return self.history[-1].loss if self.history else None

    @property
    def still_falling(self) -> bool:
        """Whether that loss was still falling fast in the last epochs (`dorylax.runs.convergence`)."""
        return still_falling([record.loss for record in self.history])

    @property
    def seconds_per_epoch(self) -> float | None:
        """Median of the epochs' training seconds without the first (the first itself if it is the only one)."""
        seconds = [record.seconds for record in self.history]
        return statistics.median(seconds[1:] or seconds) if seconds else None

    def _at_best(self, name: str) -> float | None:
        value: float | None = None if self.best_epoch is None else getattr(self.history[self.best_epoch], name)
        return value

    def summary(self) -> dict[str, Any]:
        """The results as plain values: summary.json without the seed (docs/run-directory.md has the fields)."""
        losses = {"val_loss": self.val_loss, "test_loss": self.test_loss} if self.metric == "loss" else {}
        other = self.metric not in (*ACCURACIES, "loss")
        scores = {"val_score": self.val_score, "test_score": self.test_score} if other else {}
        return {
            "stopped": self.stopped,
            "epochs": len(self.history),
            "metric": self.metric,
            "best_epoch": self.best_epoch,
            "val_accuracy": self.val_accuracy,
            "test_accuracy": self.test_accuracy,
            **losses,
            **scores,
            "final_loss": self.final_loss,
            "still_falling": self.still_falling,
            "seconds_per_epoch": self.seconds_per_epoch,
            "timings": dataclasses.asdict(self.timings),
            "passes": None if self.passes is None else list(self.passes),
            "pipeline": self.pipeline,
        }


@final
class TrainingError(DorylaxError, RuntimeError):
    """A run that cannot go on.

    Attributes:
        result: what it had reached, where there is something: history, best parameters, timings.
    """

    def __init__(self, message: str, result: TrainResult | None = None) -> None:
        super().__init__(message)
        self.result = result
