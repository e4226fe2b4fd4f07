"""The tables of a sweep: tidy CSV files with one row per run, and mean ± standard deviation by setting.

`results.csv` holds only what a repetition reproduces, so that it comes out byte for byte the same on the same machine
whatever was interrupted or run again; wall-clock and host columns are in `timings.csv`.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from dorylax.cli.outcome import mean_std, spread, time_title
from dorylax.config.schema import KEYS
from dorylax.durable import write_file
from dorylax.experiments.runner import RunOutcome
from dorylax.experiments.sweep import Sweep
from dorylax.progress import duration

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
TIMINGS = ("compile", "train", "evaluate", "checkpoint", "wall")
HOST: Mapping[str, type] = {"machine": str, "cpu_count": int, "platform": str, "python": str, "dorylax": str}
"""Columns of the tables, with their types."""


def write_tables(outcomes: Sequence[RunOutcome], folder: Path) -> None:
    """Writes results.csv and timings.csv into the sweep's folder, rows sorted by the runs' keys."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.run.key)
    used = {key for outcome in outcomes for key in outcome.run.config.dotted()}
    keys = [key for key in KEYS if key in used]
    results = [{"run": outcome.run.key, **outcome.run.config.dotted(), **_result(outcome)} for outcome in outcomes]
    write_file(folder / "results.csv", to_csv(["run", *keys, *RESULTS], results))
    timings = [{"run": outcome.run.key, **_timing(outcome)} for outcome in outcomes]
    columns = ["run", "seconds_per_epoch", *(f"{name}_seconds" for name in TIMINGS), *HOST]
    write_file(folder / "timings.csv", to_csv(columns, timings))


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Comma-separated text; None is an empty field, numbers have as many digits as bring them back exactly."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return stream.getvalue()


def summary_table(sweep: Sweep, outcomes: Sequence[RunOutcome]) -> Table:
    """One row per setting: how many of its runs are done, and mean ± standard deviation over its seeds."""
    groups: dict[tuple[str, ...], list[RunOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(tuple(_cell(outcome.run.setting[axis]) for axis in sweep.axes), []).append(outcome)
    micro = any(outcome.summary.get("metric") == "micro_f1" for outcome in outcomes)
    table = Table(title=f"sweep {sweep.name}", title_justify="left", title_style="bold")
    for axis in sweep.axes:
        table.add_column(axis)
    metric = "micro-F1" if micro else "accuracy"
    time = time_title([outcome.run.config for outcome in outcomes])
    for name in ("runs", f"test {metric}", f"validation {metric}", "final loss", "best epoch", time):
        table.add_column(name, justify="right")
    for setting, members in groups.items():
        done = [outcome.summary for outcome in members if outcome.status == "done"]

        def values(name: str, done: list[dict[str, Any]] = done) -> list[float | None]:
            return [None if (value := summary.get(name)) is None else float(value) for summary in done]

        loss, deviation = mean_std(values("final_loss"))
        best, _ = mean_std(values("best_epoch"))
        seconds = [value for value in values("seconds_per_epoch") if value is not None]
        failed = sum(outcome.status == "failed" for outcome in members)
        table.add_row(
            *setting,
            f"{len(done)}/{len(members)}" + (f", {failed} failed" if failed else ""),
            spread(values("test_accuracy")),
            spread(values("val_accuracy")),
            "–" if loss is None else f"{loss:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}"),
            "–" if best is None else f"{best:.0f}",
            duration(statistics.median(seconds)) if seconds else "–",
        )
    return table


def _result(outcome: RunOutcome) -> dict[str, Any]:
    return {**{name: outcome.summary.get(name) for name in RESULTS}, "status": outcome.status}


def _timing(outcome: RunOutcome) -> dict[str, Any]:
    if outcome.status != "done":
        return {}
    spent = outcome.summary.get("timings") or {}
    return {
        "seconds_per_epoch": outcome.summary.get("seconds_per_epoch"),
        **{f"{name}_seconds": spent.get(name) for name in TIMINGS},
        **{name: outcome.environment.get(name) for name in HOST},
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
