"""Results of training: one record per epoch, the result of a run, and the error that ends a run.

Plain data without JAX arrays on a device. This module alone defines the reported numbers: `best_epoch`,
`TrainResult.test_accuracy`, `final_loss`, `still_falling`, `seconds_per_epoch`.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final, get_args

from dorylax.errors import DorylaxError
from dorylax.runs.metric import ACCURACIES, METRICS

Stopped = Literal["epochs", "target", "patience", "signal", "diverged"]
Mask = Literal["train", "val", "test"]
_TENTHS = 10
_FALLING = 0.03
"""Share of the whole fall. An even fall loses a ninth of it in the last tenth; a loss within e^-3 of its limit loses 1 %."""
_OPTIONAL = (
    ("dollars",),
    ("train_loss", "val_loss", "test_loss"),
    ("metric", "train_score", "val_score", "test_score"),
)
"""Fields that a record has together or not at all, by the first one."""


@final
@dataclasses.dataclass(frozen=True)
class EpochRecord:
    """One epoch. Evaluations are exact forward passes without dropout, after the update of the epoch.

    Attributes:
        epoch: Number of the epoch, from 0.
        loss: Masked training loss, without penalty, before the update.
        train_accuracy, val_accuracy, test_accuracy: Accuracy as a fraction (micro-F1 for multi-label data); None without
            evaluation, for an empty mask, and under another metric.
        seconds: Time of training alone, without evaluation, checkpoint and compilation; wall time, or simulated time on a
            pipeline's virtual clock.
        dollars: Cost of the run up to the end of the epoch in US dollars; None if the run is free.
        train_loss, val_loss, test_loss: Mean loss over the vertices of each mask; None as for accuracies.
        metric: Name of the metric of the scores; None without evaluation, and under accuracy or loss.
        train_score, val_score, test_score: The metric on the examples of each mask; None as for accuracies.
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
        """Make the record of an epoch from the scores of its three masks, which are None without evaluation."""
        kind = "accuracy" if metric in ACCURACIES else "loss" if metric == "loss" else "score"
        given: dict[str, Any] = {f"{mask}_{kind}": score for mask, score in zip(get_args(Mask), scores, strict=True)}
        if kind == "score" and scores[0] is not None:
            given["metric"] = metric
        return dataclasses.replace(cls(epoch, loss, None, None, None, seconds, dollars), **given)

    def score(self, mask: Mask) -> float | None:
        """Return the score by the metric of the run; None without evaluation, and for an empty mask."""
        kind = "loss" if self.train_loss is not None else "accuracy" if self.metric is None else "score"
        value: float | None = getattr(self, f"{mask}_{kind}")
        return value

    @property
    def judge(self) -> str:
        """Name of the metric of `score`; "accuracy" stands for micro-F1 too, and for no evaluation."""
        return self.metric or ("accuracy" if self.train_loss is None else "loss")

    def unevaluated(self) -> EpochRecord:
        """Return the same epoch without its evaluation."""
        return EpochRecord(self.epoch, self.loss, None, None, None, self.seconds, self.dollars)

    @property
    def evaluated(self) -> bool:
        """Whether this epoch was evaluated (the training mask is never empty)."""
        return self.score("train") is not None

    @property
    def validated(self) -> bool:
        """Whether the epoch has a validation score."""
        return self.score("val") is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in order, as JSON values; `dollars`, losses and scores only if present."""
        left_out = {name for group in _OPTIONAL if getattr(self, group[0]) is None for name in group}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in left_out}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EpochRecord:
        """Invert `to_dict`; raise ValueError for a missing or unknown field."""
        names = {field.name for field in dataclasses.fields(cls)}
        absent = {name for group in _OPTIONAL if group[0] not in fields for name in group}
        if {*fields, *absent} != names:
            raise ValueError(f"an epoch's record has the fields {sorted(names)}, got {sorted(fields)}")
        return cls(**fields)


@final
@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds of a run by activity, summed over all its processes.

    All are real time, except `train` of a pipeline on the virtual clock, which is simulated.

    Attributes:
        compile: Tracing, splitting and compiling the model, ordering and partitioning the graph.
        train: Steps of the epochs, and values computed once for all of them.
        evaluate: Evaluations.
        checkpoint: Writing checkpoints.
        wall: `Trainer.fit` in the last process of the run; real time on any clock.
    """

    compile: float = 0.0
    train: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    wall: float = 0.0


def improves(record: EpochRecord, best: EpochRecord | None) -> bool:
    """Whether an epoch is better than the best so far; see `best_epoch`."""
    if not record.evaluated:
        return False
    value, other = record.score("val"), None if best is None else best.score("val")
    return value is None or other is None or METRICS[record.judge].better(value, other)


def best_epoch(history: Sequence[EpochRecord]) -> int | None:
    """Return the earliest epoch of the best validation score; None before any evaluation.

    For an empty validation mask, return the last evaluated epoch.
    """
    best: EpochRecord | None = None
    for record in history:
        if improves(record, best):
            best = record
    return None if best is None else best.epoch


def still_falling(losses: Sequence[float]) -> bool:
    """Whether the training loss fell by 3 % of its whole fall or more from the second last tenth to the last.

    Fewer than 20 losses are too few to decide: False.
    """
    if len(losses) < 2 * _TENTHS:
        return False
    tenth = len(losses) // _TENTHS
    before, last = statistics.fmean(losses[-2 * tenth : -tenth]), statistics.fmean(losses[-tenth:])
    whole = losses[0] - last
    return whole > 0 and before - last >= _FALLING * whole


@final
@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The result of a run.

    Attributes:
        history: One record per epoch, from epoch 0 even if the run was resumed.
        params: Parameters after `best_epoch`, a nested dict of NumPy arrays (used by `Trainer.predict`); the last ones if no
            epoch was evaluated.
        last_params: Parameters after the last epoch, in the same form.
        best_epoch: See `best_epoch` in this module.
        stopped: Reason of the end: all "epochs" done, the "target" reached, "patience" exhausted, a "signal" (SIGTERM), or
            "diverged" (only inside a `TrainingError`).
        timings: Seconds of compilation, training, evaluation and checkpoints.
        metric: Metric that judges the run, one of `METRICS`. Accuracies are micro-F1 under "micro_f1", and None unless it is
            one of these two; losses exist under "loss", scores under any other metric.
        first_epoch: First epoch of this process; 0 unless resumed.
        passes: Passes of the optimised program; None for plain `jax.value_and_grad`.
        pipeline: Mode, staleness, servers, intervals and counters of the pipeline; None without a pipeline.
        state: The model's state without parameters (running statistics) after `best_epoch`; for a Linen module the other
            collections: `module.apply({"params": result.params, **result.state}, …)`.
        trained: `dorylax.trainer.trained.TrainedModel` of `params` and `state`; None if only numbers are known.
        test_examples: Number of test vertices, pairs or graphs; None if unknown.
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
    trained: Any = dataclasses.field(default=None, repr=False, compare=False)
    test_examples: int | None = None

    @property
    def model(self) -> Any:
        """The model with the parameters and state of the best epoch, without dropout; a new object each time.

        A Flax NNX module after `eval()`, called as `model(graph, x)`; a Linen module bound by `module.bind`; or the
        `functools.partial` of a function.
        """
        return self._there.bound()

    def predict(self, graph: Any, x: Any, **inputs: Any) -> Any:
        """Return the output of `model(graph, x)` on any graph, by an exact forward pass, compiled once per graph size.

        Args:
            graph: A `dorylax.Graph` with V vertices.
            x: Features `[V, F]`, prepared as in training (`Dataset.row_normalised`, say).
            inputs: Further inputs of the model; inputs per edge may come with the graph.

        Returns:
            NumPy arrays, floating ones as float32; row i belongs to row i of the graph.

        Raises:
            ValueError: The number of features differs, or an input is missing or unknown.
        """
        return self._there.predict(graph, x, **inputs)

    def intermediates(self, graph: Any, x: Any, **inputs: Any) -> dict[str, Any]:
        """Return the outputs of the model's layers for the arguments of `predict`: hidden rows, attention coefficients.

        Returns:
            Name → array, sorted. `convs.0` is the output of `model.convs[0]`, `output` that of the model, and
            `convs.0.attention` a value that the layer sowed (`nnx.Intermediate`). Several of a name are numbered,
            `skeleton.hidden.0`. Rows are vertices or edges in the order of the graph and its edge ids.

        Raises:
            TypeError: The model is a function without layers.
        """
        found: dict[str, Any] = self._there.intermediates(graph, x, **inputs)
        return found

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one file that needs only JAX and NumPy, for graphs of any size.

        `python FILE INPUT.npz OUTPUT` runs the file; so does `runpy.run_path(FILE)["Model"]()` in Python, called as
        `(edge_index [2, E], x [V, F])`. The output equals that of `predict`, to rounding. The file row-normalises features
        if the configuration did so in training.

        Raises:
            InputError: The model depends on the numbers of vertices and edges, or computes in 64 bits.
            OSError: The file cannot be written; an old one stays.
        """
        self._there.export(path)

    def __getstate__(self) -> dict[str, Any]:
        """Return numbers and parameters for pickle, without compiled functions."""
        return {**self.__dict__, "trained": None}

    @property
    def _there(self) -> Any:
        if self.trained is None:
            raise TrainingError("this result has numbers alone: Trainer(…, run_directory=…) has the run's model")
        return self.trained

    def frame(self) -> Any:
        """Return the history as a pandas frame: a row per epoch, a column for each field of `EpochRecord` in use.

        `time` is the training time in seconds up to the end of the epoch. Missing values are NaN. `dorylax.experiments.load`
        returns such frames of whole sweeps.
        """
        import pandas  # type: ignore[import-untyped]

        from dorylax.runs.curves import columns_of

        whole = pandas.DataFrame(columns_of(EpochRecord, [self.history]))
        return whole.dropna(axis="columns", how="all") if self.history else whole

    def plot(self) -> Any:
        """Draw loss and scores by epoch, with the best epoch, as a Matplotlib figure."""
        from dorylax.runs.curves import plot

        return plot(self.history, self.best_epoch, METRICS[self.metric])

    def __repr__(self) -> str:
        fields = {name: value for name, value in self.summary().items() if isinstance(value, str | int | float)}
        shown = {name: f"{value:.4g}" if isinstance(value, float) else repr(value) for name, value in fields.items()}
        return f"TrainResult({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def val_accuracy(self) -> float | None:
        """Validation accuracy at the best epoch, a fraction; None for an empty mask, and under another metric."""
        return self._at_best("val_accuracy")

    @property
    def test_accuracy(self) -> float | None:
        """Test accuracy at the best epoch, a fraction; None for an empty mask, and under another metric."""
        return self._at_best("test_accuracy")

    @property
    def val_loss(self) -> float | None:
        """Mean loss over the validation vertices at the best epoch; None under another metric."""
        return self._at_best("val_loss")

    @property
    def test_loss(self) -> float | None:
        """Mean loss over the test vertices at the best epoch; None under another metric."""
        return self._at_best("test_loss")

    @property
    def val_score(self) -> float | None:
        """The run's metric on the validation examples at the best epoch; None if there are none."""
        return None if self.best_epoch is None else self.history[self.best_epoch].score("val")

    @property
    def test_score(self) -> float | None:
        """The run's metric on the test examples at the best epoch; None if there are none."""
        return None if self.best_epoch is None else self.history[self.best_epoch].score("test")

    @property
    def final_loss(self) -> float | None:
        """Masked training loss of the last epoch, without penalty, before its update; None before any epoch."""
        return self.history[-1].loss if self.history else None

    @property
    def still_falling(self) -> bool:
        """Whether the training loss was still falling fast at the end."""
        return still_falling([record.loss for record in self.history])

    @property
    def seconds_per_epoch(self) -> float | None:
        """Median training seconds of the epochs without the first (of the first if it is the only one)."""
        seconds = [record.seconds for record in self.history]
        return statistics.median(seconds[1:] or seconds) if seconds else None

    def _at_best(self, name: str) -> float | None:
        value: float | None = None if self.best_epoch is None else getattr(self.history[self.best_epoch], name)
        return value

    def summary(self) -> dict[str, Any]:
        """Return the results as plain values: the fields of summary.json (docs/run-directory.md) without the seed."""
        kind = "loss" if self.metric == "loss" else None if self.metric in ACCURACIES else "score"
        other = {name: getattr(self, name) for name in (f"val_{kind}", f"test_{kind}")} if kind else {}
        return {
            "stopped": self.stopped,
            "epochs": len(self.history),
            "metric": self.metric,
            "best_epoch": self.best_epoch,
            "val_accuracy": self.val_accuracy,
            "test_accuracy": self.test_accuracy,
            **other,
            "test_examples": self.test_examples,
            "final_loss": self.final_loss,
            "still_falling": self.still_falling,
            "seconds_per_epoch": self.seconds_per_epoch,
            "timings": dataclasses.asdict(self.timings),
            "passes": None if self.passes is None else list(self.passes),
            "pipeline": self.pipeline,
        }


@final
class TrainingError(DorylaxError, RuntimeError):
    """A run that cannot continue.

    Attributes:
        result: Its history, best parameters and timings so far; None if there are none.
    """

    def __init__(self, message: str, result: TrainResult | None = None) -> None:
        super().__init__(message)
        self.result = result
