"""Results over seeds: mean and standard deviation, as one JSON object and as one table."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from rich.console import Console
from rich.table import Table

from dorylax.observers.progress import duration

if TYPE_CHECKING:
    from dorylax.config import RunConfig
    from dorylax.runs.result import TrainResult


@final
@dataclasses.dataclass(frozen=True)
class SeedOutcome:
    """What one seed came to; the definitions are `dorylax.runs.result`'s. `error` is why it has no numbers."""

    seed: int
    test_accuracy: float | None = None
    val_accuracy: float | None = None
    final_loss: float | None = None
    seconds_per_epoch: float | None = None
    best_epoch: int | None = None
    epochs: int = 0
    stopped: str = "failed"
    metric: str = "accuracy"
    pipeline: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def from_result(cls, seed: int, result: TrainResult) -> SeedOutcome:
        """Of a run in this process."""
        return cls(
            seed=seed,
            test_accuracy=result.test_accuracy,
            val_accuracy=result.val_accuracy,
            final_loss=result.final_loss,
            seconds_per_epoch=result.seconds_per_epoch,
            best_epoch=result.best_epoch,
            epochs=len(result.history),
            stopped=result.stopped,
            metric=result.metric,
            pipeline=result.pipeline,
        )

    @classmethod
    def from_summary(cls, seed: int, summary: Mapping[str, Any]) -> SeedOutcome:
        """Of a finished run, from its `summary.json`."""
        names = {field.name for field in dataclasses.fields(cls)} - {"seed", "error"}
        return cls(seed=seed, **{name: summary[name] for name in names & summary.keys()})


def mean_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1) of the values that there are; None where there are too few."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None


def report(config: RunConfig, outcomes: Sequence[SeedOutcome], folder: Path | None) -> dict[str, Any]:
    """All results as one object of plain values (docs/command-line.md has the fields)."""

    def over_seeds(name: str) -> dict[str, Any]:
        values = [getattr(outcome, name) for outcome in outcomes]
        mean, std = mean_std(values)
        return {"mean": mean, "std": std, "per_seed": values}

    seconds = [outcome.seconds_per_epoch for outcome in outcomes if outcome.seconds_per_epoch is not None]
    metrics = [outcome.metric for outcome in outcomes if outcome.error is None]
    return {
        "schema": 1,
        "metric": metrics[0] if metrics else "accuracy",
        "seeds": [outcome.seed for outcome in outcomes],
        "test_accuracy": over_seeds("test_accuracy"),
        "val_accuracy": over_seeds("val_accuracy"),
        "final_loss": [outcome.final_loss for outcome in outcomes],
        "best_epoch": [outcome.best_epoch for outcome in outcomes],
        "epochs": [outcome.epochs for outcome in outcomes],
        "stopped": [outcome.stopped for outcome in outcomes],
        "errors": [outcome.error for outcome in outcomes],
        "seconds_per_epoch": statistics.median(seconds) if seconds else None,
        "pipeline": None if config.pipeline is None else [outcome.pipeline for outcome in outcomes],
        "run_directory": None if folder is None else str(folder),
        "config": config.to_dict(),
    }


def show(config: RunConfig, outcomes: Sequence[SeedOutcome], folder: Path | None) -> None:
    """Prints the results on standard output: a row per seed, then mean ± standard deviation."""
    metric = "micro-F1" if any(outcome.metric == "micro_f1" for outcome in outcomes) else "accuracy"
    table = Table(
        title=f"{config.model.name} on {Path(config.data.name).name.removesuffix('.npz')}",
        title_justify="left",
        title_style="bold",
    )
    for name in (
        "seed",
        f"test {metric}",
        f"validation {metric}",
        "final loss",
        "best epoch",
        "epochs",
        time_title([config]),
    ):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        if outcome.error:
            table.add_row(str(outcome.seed), "failed")
            continue
        table.add_row(
            str(outcome.seed),
            percent(outcome.test_accuracy),
            percent(outcome.val_accuracy),
            "–" if outcome.final_loss is None else f"{outcome.final_loss:.4f}",
            "–" if outcome.best_epoch is None else str(outcome.best_epoch),
            f"{outcome.epochs}{'*' if outcome.stopped in ('target', 'patience') else ''}",
            "–" if outcome.seconds_per_epoch is None else duration(outcome.seconds_per_epoch),
        )
    if len(outcomes) > 1:
        table.add_section()
        losses = mean_std([outcome.final_loss for outcome in outcomes])
        seconds = [outcome.seconds_per_epoch for outcome in outcomes if outcome.seconds_per_epoch is not None]
        table.add_row(
            "mean ± std",
            spread([outcome.test_accuracy for outcome in outcomes]),
            spread([outcome.val_accuracy for outcome in outcomes]),
            "–" if losses[0] is None else f"{losses[0]:.4f}" + ("" if losses[1] is None else f" ± {losses[1]:.4f}"),
            "",
            "",
            duration(statistics.median(seconds)) if seconds else "–",
            style="bold",
        )
    print_table(table)
    if any(outcome.stopped in ("target", "patience") for outcome in outcomes):
        print("* stopped before train.epochs: target accuracy reached, or patience exhausted")
    if folder is not None:
        print(f"run directory: {folder}")


def time_title(configs: Iterable[RunConfig]) -> str:
    """The title of a column of times per epoch, which says where they are simulated."""
    clocks = {"real" if config.pipeline is None else config.pipeline.clock for config in configs}
    if clocks == {"virtual"}:
        return "virtual time per epoch"
    return "time per epoch (of either clock)" if "virtual" in clocks else "time per epoch"


def print_table(table: Table) -> None:
    """Prints a table whole: where the output is no terminal, lines are as long as they need to be."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def percent(value: float | None) -> str:
    """A fraction as `81.5 %`."""
    return "–" if value is None else f"{100 * value:.1f} %"


def spread(values: Sequence[float | None]) -> str:
    """Fractions as `81.5 ± 0.6 %`."""
    mean, std = mean_std(values)
    if mean is None:
        return "–"
    return f"{100 * mean:.1f} %" if std is None else f"{100 * mean:.1f} ± {100 * std:.1f} %"
