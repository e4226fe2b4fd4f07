"""The tables of a sweep: CSV files with a row per run, the printed summary by variant, and pandas frames.

`results.csv` holds only reproducible values, so a repetition on the same machine gives the same bytes. Wall-clock times and
hosts are in `timings.csv`.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dorylax.columns import column
from dorylax.config import RunConfig
from dorylax.config.schema import KEYS
from dorylax.experiments.folder import read_study
from dorylax.experiments.measures import COMPARED, MEASURES, SIMULATED
from dorylax.experiments.names import fold, metric_of, test_set
from dorylax.experiments.runner import history_of
from dorylax.experiments.seed_statistics import mean_std, median
from dorylax.experiments.sweep import RunOutcome, Study, Sweep
from dorylax.observers.progress import duration
from dorylax.runs.metric import ACCURACIES, METRICS, MetricKind, score_in
from dorylax.runs.result import EpochRecord
from dorylax.settings.words import type_words
from dorylax.store.durable import write_file
from dorylax.terminal.output import print_table

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

_LEVELS = ("epochs", "runs")
_KINDS: Mapping[str, type] = {"a whole number": int, "a number": float, "true or false": bool}  # all others are text


_EARLY = ("target", "patience")
_WIDTH = 100
_NARROW = 16  # letters of a folded name, at least

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
    rows = [{"run": outcome.run.key, **outcome.run.dotted(), **row(outcome)} for outcome in outcomes]
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
        **{name: outcome.summary.get(name) for name in (*RESULTS, *_OTHERS, *SIMULATED, "seconds_per_epoch")},
        "status": outcome.status,
        **{f"{name}_seconds": spent.get(name) for name in _SPENT},
        **{name: outcome.environment.get(name) for name in _HOST},
    }


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Comma-separated text; None is an empty field, truth values are lower case, and numbers have all digits."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(str(cell).lower() if isinstance(cell, bool) else cell for cell in map(row.get, columns))
    return stream.getvalue()


def print_summary(study: Study, title: str) -> None:
    """Print a table for the sweep, or one for each of its parts, at most `_WIDTH` columns wide."""
    for part in study.parts:
        name = f"{title}: {part.sweep.name}" if study.sweep.parts else title
        print_table(summary_table(part.sweep, part.outcomes, name), width=_WIDTH)
        sizes = {int(one.summary.get("test_examples") or 0): one.run.config for one in part.outcomes}
        if told := " or ".join(test_set(sizes[count], count) for count in sorted(sizes) if count):
            print(f"tested on {told}")
        if any(outcome.summary.get("stopped") in _EARLY for outcome in part.outcomes):
            print("* stopped before train.epochs: target reached, or patience exhausted")


def summary_table(sweep: Sweep, outcomes: Sequence[RunOutcome], title: str) -> Table:
    """A row per variant, or per seed if only seeds vary; columns with one value for all become the caption."""
    members: dict[str, list[RunOutcome]] = {}
    for outcome in outcomes:
        members.setdefault(outcome.run.name if sweep.axes else str(outcome.run.config.train.seed), []).append(outcome)
    rows = []
    for name, of in members.items():
        count = Counter(outcome.status for outcome in of)
        runs = f"{count['done']}/{len(of)}" + (f", {count['failed']} failed" if count["failed"] else "")
        results = _simulated(_done(of)) if sweep.simulated else _results(_done(of), outcomes)
        begin = {"variant": name, "runs": runs} if sweep.axes else {"seed": name, "run": of[0].status}
        rows.append(begin | results)
    first, *columns = rows[0]
    same = [name for name in columns if len(rows) > 1 and len({row[name] for row in rows}) == 1]
    same += [name for name in columns if not sweep.axes and rows[0][name] == "done" and len(rows) == 1]
    shown = [name for name in columns if name not in same]
    told = ", ".join(f"{name} {rows[0][name]}" for name in same if rows[0][name] not in ("–", "done"))
    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left")
    table.caption = f"the same for all: {told}" if told else None
    # A long name is folded only if there is no room for it even next to folded titles, and then between its settings.
    width = min(_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH
    least = {name: max(len(text) for one in rows for text in (*name.split(), one[name])) for name in shown}
    room = width - 4 - sum(3 + letters for letters in least.values())
    names = [fold(row[first], max(_NARROW, room)) for row in rows]
    table.add_column(first, overflow="fold", no_wrap=room >= _NARROW, justify="left" if sweep.axes else "right")
    folded = room >= _NARROW and any("\n" in name for name in names)
    for name in shown:
        table.add_column(name, justify="right", width=least[name] if folded else None)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *(row[column] for column in shown))
    if not sweep.axes and len(rows) > 1:
        mean = {"run": "", **_results(_done(outcomes), outcomes)}
        table.add_section()
        table.add_row("mean ± std", *(mean[name] for name in shown), style="bold")
    return table


def _done(outcomes: Sequence[RunOutcome]) -> list[Mapping[str, Any]]:
    return [outcome.summary for outcome in outcomes if outcome.status == "done"]


def _simulated(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
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
    (best, _), (epochs, _) = mean_std(values("best_epoch")), mean_std(values("epochs"))
    early = any(summary.get("stopped") in _EARLY for summary in summaries)
    seconds = median(values("seconds_per_epoch"))
    return {
        f"test {kind.title}": spread([score_in(summary, "test") for summary in summaries], kind),
        f"validation {kind.title}": spread([score_in(summary, "val") for summary in summaries], kind),
        "final loss": spread(values("final_loss"), METRICS["loss"]),
        "best epoch": "–" if best is None else f"{best:.0f}",
        "epochs": "–" if epochs is None else f"{epochs:.0f}{'*' * early}",
        time_title([outcome.run.config for outcome in outcomes]): "–" if seconds is None else duration(seconds),
    }


def spread(values: Sequence[float | None], kind: MetricKind = METRICS["accuracy"]) -> str:
    """Mean and deviation: `81.5 ± 0.6 %` for fractions, else `0.4212 ± 0.0031`; a dash without values."""
    mean, std = mean_std(values)
    if mean is None or std is None:
        return "–" if mean is None else kind.shown(mean)
    return f"{100 * mean:.1f} ± {100 * std:.1f} %" if kind.fraction else f"{mean:.4f} ± {std:.4f}"


def time_title(configs: Iterable[RunConfig]) -> str:
    """The title of a column of times per epoch."""
    clocks = {"real" if config.pipeline is None else config.pipeline.clock for config in configs}
    if clocks == {"virtual"}:
        return "simulated time per epoch"
    return "time per epoch (of either clock)" if "virtual" in clocks else "time per epoch"


def load(*folders: str | os.PathLike[str], level: str = "epochs") -> pandas.DataFrame:
    """Join the folders of sweeps into one frame.

    The first columns are `sweep` (its name), `run` (its key) and every dotted key of the configuration that a run has.
    Missing values are `NaN` in columns of floats, else `pandas.NA`.

    Args:
        folders: Folders of sweeps, at least one; repeated ones count once.
        level: "epochs" for a row per epoch of each run that is done, with the fields of `EpochRecord` and `time`, the
            seconds of training until its end; "runs" for a row per run with the columns of results.csv and timings.csv.

    Returns:
        Rows sorted by sweep, run and epoch.

    Raises:
        ValueError: The level is unknown, or there is no folder.
        ConfigError: A folder belongs to no sweep.
        RunDirectoryError: A run's metrics.jsonl cannot be read.
    """
    if level not in _LEVELS:
        raise ValueError(f"level must be one of {', '.join(_LEVELS)}, got {level!r}")
    if not folders:
        raise ValueError("load needs the folder of at least one sweep")
    import pandas

    from dorylax.runs.curves import columns_of  # loads Matplotlib

    paths = {Path(folder).resolve(): Path(folder) for folder in folders}
    studies = [read_study(path) for path in paths.values()]
    members = [(study, outcome) for study in studies for outcome in study.outcomes]
    members.sort(key=lambda member: (member[0].sweep.name, member[1].run.key))
    keys = keys_of([outcome for _, outcome in members])
    if level == "epochs":
        members = [member for member in members if member[1].status == "done"]
    outcomes, settings = [outcome for _, outcome in members], [outcome.run.dotted() for _, outcome in members]
    columns = {
        "sweep": column([study.sweep.name for study, _ in members], str),
        "run": column([outcome.run.key for outcome in outcomes], str),
        **{key: column(values := [one.get(key) for one in settings], _kind(key, values)) for key in keys},
    }
    if level == "runs":
        rows = [row(outcome) for outcome in outcomes]
        kinds = {**results_of(outcomes), **TIMINGS}
        return pandas.DataFrame(columns | {name: column([one[name] for one in rows], kinds[name]) for name in kinds})
    histories = [history_of(study.folder, outcome) for study, outcome in members]
    runs = pandas.DataFrame(columns)
    repeated = runs.loc[runs.index.repeat([len(history) for history in histories])].reset_index(drop=True)
    return pandas.concat([repeated, pandas.DataFrame(columns_of(EpochRecord, histories))], axis=1)


def _kind(key: str, values: Sequence[Any]) -> type:
    """The type of a key's values, which the configuration declares; keys of simulations follow their values."""
    if key in KEYS:
        return _KINDS.get(type_words(KEYS[key]), str)
    kinds = {type(value) for value in values if value is not None}
    return next(iter(kinds)) if len(kinds) == 1 else float if kinds == {int, float} else str
