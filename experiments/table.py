"""The tables of a sweep: CSV files with a row per run, and the printed summary by variant.

`results.csv` holds only reproducible values, so a repetition on the same machine gives the same bytes. Wall-clock times and
hosts are in `timings.csv`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from dorylax.config import RunConfig
from dorylax.config.schema import KEYS
from dorylax.experiments.measures import COMPARED, MEASURES, SIMULATED
from dorylax.experiments.names import metric_of
from dorylax.experiments.seed_statistics import mean_std, median
from dorylax.experiments.sweep import RunOutcome, Study, Sweep
from dorylax.observers.progress import duration
from dorylax.runs.metric import ACCURACIES, METRICS, MetricKind, score_in
from dorylax.store.durable import write_file
from dorylax.terminal.output import percent, print_table

_EARLY = ("target", "patience")
_WIDTH = 100

RESULTS: Mapping[str, type] = {
    "status": str,
    "stopped": str,
    "epochs": int,
    "best_epoch": int,
    "metric": str,
    "val_accuracy": float,
    "test_accuracy": float,
    "final_loss": float,
}
_OTHERS = ("val_loss", "test_loss", "val_score", "test_score")  # of runs that no accuracy judges
_SPENT = ("compile", "train", "evaluate", "checkpoint", "wall")
_HOST: Mapping[str, type] = {"machine": str, "cpu_count": int, "platform": str, "python": str, "dorylax": str}
TIMINGS: Mapping[str, type] = {"seconds_per_epoch": float, **{f"{name}_seconds": float for name in _SPENT}, **_HOST}
"""Columns of the tables, with their types."""


def write_tables(outcomes: Sequence[RunOutcome], folder: Path) -> None:
    """Write results.csv and timings.csv into the sweep's folder, with rows sorted by key."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.run.key)
    settings = [{"run": outcome.run.key, **outcome.run.dotted()} for outcome in outcomes]
    rows = [setting | row(outcome) for setting, outcome in zip(settings, outcomes, strict=True)]
    columns = ["run", *keys_of(outcomes), *results_of(outcomes)]
    write_file(folder / "results.csv", to_csv(columns, rows))
    write_file(folder / "timings.csv", to_csv(["run", *TIMINGS], rows))


def keys_of(outcomes: Iterable[RunOutcome]) -> list[str]:
    """The keys of runs in the order of configurations; then those of simulations."""
    used = dict.fromkeys(key for outcome in outcomes for key in outcome.run.dotted())
    return [key for key in KEYS if key in used] + [key for key in used if key not in KEYS]


def results_of(outcomes: Sequence[RunOutcome]) -> dict[str, type]:
    """The result columns of these runs with their types: of training, of simulations, or of both."""
    simulated = [outcome.run.simulation is not None for outcome in outcomes]
    judged = {outcome.summary.get("metric") for outcome in outcomes} - {None, *ACCURACIES}
    others = {f"{mask}_{'loss' if name == 'loss' else 'score'}": float for mask in ("val", "test") for name in judged}
    return {**({} if all(simulated) else {**RESULTS, **others}), **(SIMULATED if any(simulated) else {})}


def row(outcome: RunOutcome) -> dict[str, Any]:
    """The values of `RESULTS`, `SIMULATED` and `TIMINGS` for a run; None for missing ones."""
    spent = outcome.summary.get("timings") or {}
    return {
        **{name: outcome.summary.get(name) for name in (*RESULTS, *_OTHERS, *SIMULATED)},
        "status": outcome.status,
        "seconds_per_epoch": outcome.summary.get("seconds_per_epoch"),
        **{f"{name}_seconds": spent.get(name) for name in _SPENT},
        **{name: outcome.environment.get(name) for name in _HOST},
    }


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Comma-separated text; None is an empty field, and numbers have all digits."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return stream.getvalue()


def print_summary(study: Study, title: str) -> None:
    """Print a table for the sweep, or one for each of its parts, at most `_WIDTH` columns wide."""
    for part in study.parts:
        name = f"{title}: {part.sweep.name}" if study.sweep.parts else title
        print_table(summary_table(part.sweep, part.outcomes, name), width=_WIDTH)
        if any(outcome.summary.get("stopped") in _EARLY for outcome in part.outcomes):
            print("* stopped before train.epochs: target reached, or patience exhausted")


def summary_table(sweep: Sweep, outcomes: Sequence[RunOutcome], title: str) -> Table:
    """A row per variant, or per seed if only seeds vary; columns with one value for all become the caption."""
    members: dict[str, list[RunOutcome]] = {}
    for outcome in outcomes:
        members.setdefault(outcome.run.name if sweep.axes else str(outcome.run.config.train.seed), []).append(outcome)
    rows = []
    for name, of in members.items():
        done = [outcome.summary for outcome in of if outcome.status == "done"]
        failed = sum(outcome.status == "failed" for outcome in of)
        runs = f"{len(done)}/{len(of)}" + (f", {failed} failed" if failed else "") if sweep.axes else of[0].status
        results = _simulated(done) if sweep.simulated else _results(done, outcomes)
        rows.append({"variant" if sweep.axes else "seed": name, "runs" if sweep.axes else "run": runs, **results})
    first, *columns = rows[0]
    same = [name for name in columns if len(rows) > 1 and len({row[name] for row in rows}) == 1]
    same += [name for name in columns if not sweep.axes and rows[0][name] == "done" and len(rows) == 1]
    shown = [name for name in columns if name not in same]
    told = ", ".join(f"{name} {rows[0][name]}" for name in same if rows[0][name] not in ("–", "done"))
    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left")
    table.caption = f"the same for all: {told}" if told else None
    table.add_column(first, overflow="fold", justify="left" if sweep.axes else "right")
    for name in shown:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row[first], *(row[name] for name in shown))
    if not sweep.axes and len(rows) > 1:
        done = [outcome.summary for outcome in outcomes if outcome.status == "done"]
        mean = {"run": "", **_results(done, outcomes)}
        table.add_section()
        table.add_row("mean ± std", *(mean[name] for name in shown), style="bold")
    return table


def _simulated(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The cells of one row of simulated runs: means."""
    titles = {"epoch_seconds": "simulated epoch", "seconds": "simulated run"}
    means = {name: mean_std([summary.get(name) for summary in summaries])[0] for name in COMPARED}
    return {
        titles.get(name, MEASURES[name].title): "–" if mean is None else MEASURES[name].shown(mean)
        for name, mean in means.items()
    }


def _results(summaries: Sequence[Mapping[str, Any]], outcomes: Sequence[RunOutcome]) -> dict[str, str]:
    """The cells of one row: of a run, or of several as mean ± standard deviation."""

    def values(name: str) -> list[float | None]:
        return [None if (value := summary.get(name)) is None else float(value) for summary in summaries]

    kind = metric_of(outcome.summary for outcome in outcomes)
    loss, deviation = mean_std(values("final_loss"))
    (best, _), (epochs, _) = mean_std(values("best_epoch")), mean_std(values("epochs"))
    early = any(summary.get("stopped") in _EARLY for summary in summaries)
    seconds = median(values("seconds_per_epoch"))
    return {
        f"test {kind.title}": spread([score_in(summary, "test") for summary in summaries], kind),
        f"validation {kind.title}": spread([score_in(summary, "val") for summary in summaries], kind),
        "final loss": "–" if loss is None else f"{loss:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}"),
        "best epoch": "–" if best is None else f"{best:.0f}",
        "epochs": "–" if epochs is None else f"{epochs:.0f}{'*' * early}",
        time_title([outcome.run.config for outcome in outcomes]): "–" if seconds is None else duration(seconds),
    }


def spread(values: Sequence[float | None], kind: MetricKind = METRICS["accuracy"]) -> str:
    """Mean and deviation: `81.5 ± 0.6 %` for fractions, else `0.4212 ± 0.0031`."""
    mean, std = mean_std(values)
    if mean is not None and not kind.fraction:
        return f"{mean:.4f}" + ("" if std is None else f" ± {std:.4f}")
    return percent(mean) if mean is None or std is None else f"{100 * mean:.1f} ± {100 * std:.1f} %"


def time_title(configs: Iterable[RunConfig]) -> str:
    """The title of a column of times per epoch."""
    clocks = {"real" if config.pipeline is None else config.pipeline.clock for config in configs}
    if clocks == {"virtual"}:
        return "simulated time per epoch"
    return "time per epoch (of either clock)" if "virtual" in clocks else "time per epoch"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
