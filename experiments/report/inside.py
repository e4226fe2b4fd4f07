"""Figures of a run's inside: staleness of rows, a timeline of one epoch, and the time of each kind of task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Group, Variant
from dorylax.experiments.report.charts import stacked_bars
from dorylax.experiments.report.figures import NamedFigure, folded_title, legend_below
from dorylax.figure_style import MUTED, series
from dorylax.store import trace

IN_VAIN = "late or failed"
"""The kind of calls whose answer was not used."""

_KINDS = ("GA", "AV", "SC", "AE", "AV+∇AV", "∇GA", "∇AV", "∇SC", "∇AE", "network", "finish", "predict", "WU", IN_VAIN)
"""Kinds of tasks in the order of an epoch."""
_MICRO = 1e-6
_RESOURCES = ("graph", "tensor", "network", "parameters")
_TIMELINES = 4  # variants in one figure


def staleness_figure(group: Group, name: str) -> NamedFigure | None:
    """Plot the shares of rows by the epochs that they are behind their readers; None if all are current."""
    shares = {variant.name: found for variant in group.variants if (found := _lags(variant))}
    lags = sorted({lag for found in shares.values() for lag in found})
    if not any(lags):
        return None
    colors = {str(lag): series(place) for place, lag in enumerate(lags)}
    title = "Staleness of the rows that intervals read, in epochs (negative: ahead of the reader)"
    bars = {variant: {str(lag): 100 * found[lag] for lag in sorted(found)} for variant, found in shares.items()}
    return stacked_bars(f"{name}staleness", title, bars, "% of rows read", colors=colors)


def _lags(variant: Variant) -> dict[int, float]:
    total = Counter[int]()
    for run in variant.runs:
        rows = (run.summary.get("pipeline") or {}).get("rows_by_lag") or {}
        total.update({int(lag): count for lag, count in rows.items()})
    return {lag: rows / total.total() for lag, rows in total.items()} if total.total() else {}


# Traces.


def read_trace(path: Path) -> pandas.DataFrame | None:
    """The tasks of a run's trace.json; None without the file.

    Returns:
        `kind` (GA, AV, …), `resource`, `server`, `lane` (`tensor 3`), `epoch` (negative before training), and `start`, `end`
        and `duration` in microseconds.

    Raises:
        RunDirectoryError: The file is no trace, or cannot be read.
    """
    if not path.is_file():
        return None
    rows, lanes = [], dict[tuple[int, int], str]()
    for event in trace.read(path):
        thread = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            lanes[thread] = event["args"]["name"]
        elif event["ph"] == "X":
            name, resource, start = str(event["name"]), event["args"]["kind"], event["ts"]
            kind = "network" if resource == "network" else IN_VAIN if name.endswith(")") else name  # "AV (late)"
            times = {"start": start, "end": start + event["dur"], "duration": event["dur"]}
            rows.append({"kind": kind, "resource": resource, "lane": thread, "epoch": event["args"]["epoch"], **times})
    columns = ["kind", "resource", "server", "lane", "epoch", "start", "end", "duration"]
    tasks = pandas.DataFrame(rows, columns=columns)
    tasks["server"] = [server for server, _ in tasks["lane"]]
    # A damaged trace may lack the name of a lane.
    tasks["lane"] = [lanes.get(one, resource) for one, resource in zip(tasks["lane"], tasks["resource"], strict=True)]
    return tasks


def traced_epochs(tasks: pandas.DataFrame) -> int:
    """Return the number of epochs with tasks."""
    return int(tasks.loc[tasks["epoch"] >= 0, "epoch"].nunique())


def task_seconds(tasks: pandas.DataFrame) -> dict[str, float]:
    """Return the seconds per epoch by kind of task, over all servers; all messages together are `network`."""
    trained = tasks[(tasks["epoch"] >= 0) | (tasks["resource"] == "parameters")]
    seconds = _MICRO * trained.groupby("kind", sort=False)["duration"].sum() / max(1, traced_epochs(tasks))
    return {str(kind): float(value) for kind, value in seconds.items()}


def one_epoch(tasks: pandas.DataFrame) -> pandas.DataFrame:
    """Return the tasks on the first graph server and the parameter servers during an epoch of median length.

    The epoch lasts from its first task on that server to the first task of the next epoch. In asynchronous runs tasks of
    other epochs run meanwhile.

    Returns:
        `kind`, `lane`, and `start` and `end` in seconds since the epoch began.
    """
    first = tasks[(tasks["server"] == 0) & (tasks["epoch"] >= 0)].groupby("epoch")
    starts, ends = first["start"].min().to_dict(), first["end"].max().to_dict()
    if not starts:
        return tasks.iloc[:0]
    # A sampled trace does not tell when the epoch after a gap began.
    whole = [epoch for epoch in starts if epoch + 1 in starts or epoch == max(starts)]
    lengths = {epoch: starts.get(epoch + 1, ends[epoch]) - starts[epoch] for epoch in whole}
    usual = sorted(lengths, key=lambda epoch: (lengths[epoch], epoch))[len(lengths) // 2]
    begin, end = starts[usual], starts[usual] + lengths[usual]
    here = (tasks["server"] == 0) | (tasks["resource"] == "parameters")
    found = tasks[here & (tasks["end"] > begin) & (tasks["start"] < end)]
    places = {resource: place for place, resource in enumerate(_RESOURCES)}
    found = found.assign(
        place=found["lane"].str.partition(" ")[0].map(places),
        start=_MICRO * (found["start"].clip(lower=begin) - begin),
        end=_MICRO * (found["end"].clip(upper=end) - begin),
    )
    return found.sort_values(["place", "lane", "start"], kind="stable")[["kind", "lane", "start", "end"]]


def trace_figures(traces: Mapping[str, tuple[pandas.DataFrame, int]], name: str) -> list[NamedFigure | None]:
    """Plot timelines and the time of tasks.

    Args:
        traces: Variant → tasks of a run, and the number of epochs that it trained.
        name: Prefix of the files.
    """
    samples = {
        variant: f"{traced_epochs(tasks)} of the {trained} epochs of {variant}"
        for variant, (tasks, trained) in traces.items()
        if traced_epochs(tasks) < trained
    }
    timelines = {variant: one_epoch(tasks) for variant, (tasks, _) in list(traces.items())[:_TIMELINES]}
    timelines = {variant: tasks for variant, tasks in timelines.items() if len(tasks)}
    seconds = {variant: task_seconds(tasks) for variant, (tasks, _) in traces.items()}
    return [_timelines(timelines, name, samples), breakdown_figure(seconds, name, samples)]


def breakdown_figure(
    seconds: Mapping[str, Mapping[str, float]], name: str, samples: Mapping[str, str]
) -> NamedFigure | None:
    """Plot the seconds per epoch by kind of task, a bar for each variant; None without tasks.

    Args:
        seconds: Variant → kind of task → seconds per epoch.
        name: Prefix of the files.
        samples: Remarks on variants whose trace lacks epochs.
    """
    colors = _colors(kind for found in seconds.values() for kind in found)
    if not colors:
        return None
    text = f"Seconds of tasks per epoch, of all servers and functions together{_sampled(samples, seconds)}."
    return stacked_bars(
        f"{name}tasks", "Time of tasks", seconds, "seconds of tasks per epoch", colors=colors, text=text
    )


def _timelines(variants: Mapping[str, pandas.DataFrame], name: str, samples: Mapping[str, str]) -> NamedFigure | None:
    """Plot the tasks of one epoch, a row for each lane of a resource; None without tasks."""
    if not variants:
        return None
    data = pandas.concat([tasks.assign(variant=variant) for variant, tasks in variants.items()])
    colors = _colors(data["kind"])

    def draw(width: float) -> Figure:
        heights = [0.16 * tasks["lane"].nunique() + 0.32 for tasks in variants.values()]
        figure = Figure((width, sum(heights) + 0.7), layout="constrained")
        rows = figure.subplots(len(variants), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        for axes, (variant, tasks) in zip(rows, variants.items(), strict=True):
            lanes, names = pandas.factorize(tasks["lane"])
            lasting = {"width": tasks["end"] - tasks["start"], "left": tasks["start"]}
            axes.barh(lanes, **lasting, color=tasks["kind"].map(colors), height=0.84, linewidth=0)
            resources = [lane.rsplit(" ", 1)[0] for lane in names]
            places = pandas.Series(range(len(names))).groupby(resources, sort=False).mean()
            axes.set_yticks(places, places.index, fontsize=8)
            axes.set_title(folded_title(variant, width))
            axes.invert_yaxis()
            axes.grid(visible=False)
            axes.set_xlim(0, data["end"].max())
            axes.tick_params(axis="y", length=0)
        rows[-1].set_xlabel("seconds since the epoch began")
        legend_below(figure, [rows[0].barh(0, 0, color=color) for color in colors.values()], list(colors), width)
        return figure

    title = "Timeline of one epoch"
    text = (
        f"{title}: tasks on the first graph server and the parameter servers, by resource, for "
        f"{', '.join(variants)}{_sampled(samples, variants)}. All have the same scale."
    )
    columns = ["variant", "kind", "lane", "start", "end"]
    return NamedFigure(f"{name}timelines", title, text, draw, data[columns].reset_index(drop=True))


def _sampled(samples: Mapping[str, str], shown: Iterable[str]) -> str:
    told = [samples[name] for name in shown if name in samples]
    return f" (traces hold {', '.join(told)})" if told else ""


def _colors(kinds: Iterable[str]) -> dict[str, str]:
    ordered = sorted(set(kinds), key=lambda kind: (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind))
    return {kind: MUTED.light if kind == IN_VAIN else series(1 + place) for place, kind in enumerate(ordered)}
