"""A run's inside: figures of stale rows, of one epoch, and of the time of each kind of task; tables of its servers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.analysis import Group, RunHistory
from dorylax.experiments.report.figures import NamedFigure, folded_title, legend_below, stacked_bars
from dorylax.experiments.report.page import DASH, Table
from dorylax.figure_style import MUTED, series
from dorylax.observers.progress import data_size, duration
from dorylax.store import trace
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics, ServerMetrics

IN_VAIN = "late or failed"
"""The kind of calls whose answer was not used."""

_KINDS = ("GA", "AV", "SC", "AE", "AV+∇AV", "∇GA", "∇AV", "∇SC", "∇AE", "network", "finish", "predict", "WU", IN_VAIN)
"""Kinds of tasks in the order of an epoch."""
_MICRO = 1e-6
_RESOURCES = ("graph", "tensor", "network", "parameters")
_TIMELINES = 4  # variants in one figure
_LISTED = 16  # maximum number of graph servers per variant in a table
_LATE = 0.05  # a bottleneck waits less than the mean by more than this fraction of an epoch
_WAITS = ("gate", "rows", "weights")  # for the start of the epoch, for rows and sums of other servers, for weights
_NOTE = (
    "First run of each variant. Busy: share of the time of the server's graph threads. Tasks queued and tensor tasks: "
    "number waiting or under way when one arrives, mean and maximum. Waits: of an interval in an epoch, until the epoch "
    "is open, for rows and sums of other servers, and for weights. Messages, sent: to other graph servers, per epoch. "
    "Lag: epochs that a row is behind its reader. Calls in vain: calls whose answer was not used. "
)
_PARAMETERS_NOTE = (
    "Per epoch. Pulls held: the stability gate was closed, so the interval waited for exact rows. "
    "Stashes: most intervals per version."
)


def staleness_figure(group: Group, name: str) -> NamedFigure | None:
    """Plot the shares of rows by the epochs that they are behind their readers; None if all are current."""
    bars, lags = dict[str, dict[str, float]](), set[int]()
    for variant in group.variants:
        rows = Counter[int]()
        for run in variant.runs:
            counts = (run.summary.get("pipeline") or {}).get("rows_by_lag") or {}
            rows.update({int(lag): count for lag, count in counts.items()})
        if rows.total():
            bars[variant.name] = {str(lag): 100 * (rows[lag] / rows.total()) for lag in sorted(rows)}
            lags |= rows.keys()
    if not any(lags):
        return None
    colors = {str(lag): series(place) for place, lag in enumerate(sorted(lags))}
    title = "Staleness of the rows that intervals read, in epochs (negative: ahead of the reader)"
    return stacked_bars(f"{name}staleness", title, bars, "% of rows read", colors=colors)


def read_trace(path: Path) -> pandas.DataFrame | None:
    """The tasks of a run's trace.json; None without the file.

    Columns: `kind` (GA, AV, …), `resource`, `server`, `lane` (`tensor 3`), `epoch` (negative before training), and `start`,
    `end` and `duration` in microseconds.

    Raises:
        RunDirectoryError: The file cannot be read, or is no trace.
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
            times = start, start + event["dur"], event["dur"]
            rows.append((kind, resource, thread[0], thread, event["args"]["epoch"], *times))
    columns = ["kind", "resource", "server", "lane", "epoch", "start", "end", "duration"]
    tasks = pandas.DataFrame(rows, columns=columns)
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
    other epochs run meanwhile. The columns are `kind`, `lane`, and `start` and `end` in seconds since the epoch began.
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
    """Plot timelines and the time of tasks; `traces` has the tasks of each variant, and its number of trained epochs."""
    samples = {
        variant: f"{epochs} of the {trained} epochs of {variant}"
        for variant, (tasks, trained) in traces.items()
        if (epochs := traced_epochs(tasks)) < trained
    }
    timelines = {variant: one_epoch(tasks) for variant, (tasks, _) in list(traces.items())[:_TIMELINES]}
    timelines = {variant: tasks for variant, tasks in timelines.items() if len(tasks)}
    seconds = {variant: task_seconds(tasks) for variant, (tasks, _) in traces.items()}
    return [_timelines(timelines, name, samples), breakdown_figure(seconds, name, samples)]


def breakdown_figure(
    seconds: Mapping[str, Mapping[str, float]], name: str, samples: Mapping[str, str]
) -> NamedFigure | None:
    """Plot the seconds per epoch of each variant by kind of task, a bar for each variant; None without tasks.

    `samples` has remarks on variants whose trace lacks epochs.
    """
    colors = _colors(kind for found in seconds.values() for kind in found)
    if not colors:
        return None
    text = f"Seconds of tasks per epoch, of all servers and functions together{_sampled(samples, seconds)}."
    axis = "seconds of tasks per epoch"
    return stacked_bars(f"{name}tasks", "Time of tasks", seconds, axis, colors=colors, text=text)


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


class Loads(NamedTuple):
    """Server metrics of one run, aggregated over all epochs in its servers.jsonl.

    Attributes:
        graph: Table with one row per graph server. `busy` is the share of its threads' time. `queue` and `calls` are means,
            `queue_max` and `calls_max` maxima. `messages` and `message_bytes` are means per epoch. The columns in `_WAITS`
            are the seconds per interval and epoch. `rows_by_lag` and `in_vain` (unsuccessful calls by outcome) are totals.
        parameters: Table with one row per parameter server: `busy`, `stashes_max`, and counts per epoch.
        epoch_seconds: Mean time of an epoch in seconds.
    """

    graph: pandas.DataFrame
    parameters: pandas.DataFrame
    epoch_seconds: float

    @property
    def waits(self) -> pandas.Series:
        """Waiting time for other graph servers, in seconds per interval and epoch, of each graph server."""
        return self.graph["gate"] + self.graph["rows"]

    @property
    def late(self) -> int | None:
        """Graph server that the others wait for, identified by the least waiting time; None if all wait alike."""
        waits = self.waits
        return None if waits.mean() - waits.min() <= _LATE * self.epoch_seconds else int(waits.idxmin())

    @classmethod
    def of(cls, run: RunHistory, lines: Sequence[ServerMetrics]) -> Loads | None:
        """Aggregate the lines of a run's servers.jsonl. Returns None without lines."""
        pipeline, epochs = run.run.config.pipeline, {line.epoch for line in lines}
        if not lines or pipeline is None:
            return None
        seconds = sum(record.seconds for record in run.history if record.epoch in epochs)
        graph, parameters = (
            pandas.DataFrame([dataclasses.asdict(line) for line in lines if isinstance(line, kind)])
            for kind in (GraphServerMetrics, ParameterServerMetrics)
        )
        if len(parameters):
            by_server = parameters.groupby("server")
            parameters = by_server.mean().assign(
                busy=by_server["busy_seconds"].sum() / (seconds or 1.0), stashes_max=by_server["stashes_max"].max()
            )
        return cls(_graph_loads(graph, seconds, pipeline.intervals), parameters, seconds / len(epochs))


def _graph_loads(lines: pandas.DataFrame, seconds: float, intervals: int) -> pandas.DataFrame:
    by_server = lines.groupby("server")

    def mean(values: str, weights: str) -> pandas.Series:
        return (lines[values] * lines[weights]).groupby(lines["server"]).sum() / by_server[weights].sum().clip(lower=1)

    def total(counts: str) -> pandas.Series:
        return by_server[counts].agg(lambda part: pandas.DataFrame(list(part)).sum().astype(int).to_dict())

    busy = (lines["graph_seconds"] / lines["graph_threads"]).groupby(lines["server"]).sum()
    return pandas.DataFrame(
        {
            "busy": busy / seconds if seconds else 0.0 * busy,
            "queue": mean("graph_queue_mean", "graph_tasks"),
            "queue_max": by_server["graph_queue_max"].max(),
            "calls": mean("tensor_calls_mean", "tensor_tasks"),
            "calls_max": by_server["tensor_calls_max"].max(),
            **{wait: by_server[f"{wait}_seconds"].mean() / intervals for wait in _WAITS},
            **{name: by_server[name].mean() for name in ("messages", "message_bytes")},
            "rows_by_lag": total("rows_by_lag"),
            "in_vain": total("calls").map(lambda of: {key: n for key, n in of.items() if key != "answered"}),
        }
    )


def server_tables(loads: Mapping[str, Loads]) -> list[Table]:
    """Build the tables of graph servers and of parameter servers for all variants."""
    if not loads:
        return []
    graph, parameters = [], []
    for name, found in loads.items():
        prefix = f"{name}: " if len(loads) > 1 else ""
        shown = found.graph.loc[sorted(found.waits.sort_values(kind="stable").index[:_LISTED])]
        for server, one in shown.iterrows():
            row = {"server": f"{prefix}{server}", "threads busy": f"{100 * one['busy']:.1f} %"}
            row["tasks queued"] = f"{one['queue']:.1f} (≤ {one['queue_max']})"
            row["tensor tasks"] = f"{one['calls']:.1f} (≤ {one['calls_max']})"
            row |= {f"waits: {wait}": duration(one[wait]) for wait in _WAITS}
            row |= {"messages": f"{one['messages']:.0f}", "sent": data_size(one["message_bytes"])}
            in_vain = ", ".join(f"{count} {outcome}" for outcome, count in one["in_vain"].items())
            graph.append({**row, "rows by lag": _lags(one["rows_by_lag"]), "calls in vain": in_vain or DASH})
        for server, one in found.parameters.iterrows():
            row = {"server": f"{prefix}{server}", "busy": f"{100 * one['busy']:.1f} %"}
            row |= {counted: _count(one[counted]) for counted in ("pulls", "pushes", "updates")}
            row["pulls held"] = _count(one["pulls_held"]) if one["pulls_held"] else DASH
            row |= {way: data_size(one[f"bytes_{way}"]) for way in ("received", "sent")}
            parameters.append({**row, "stashes": f"≤ {one['stashes_max']:.0f}"})
    note = _NOTE + " ".join(_evenness(name, found) for name, found in loads.items() if len(found.graph) > 1)
    if any(len(found.graph) > _LISTED for found in loads.values()):
        note += f" Of more than {_LISTED} servers the table lists those that wait least; servers.jsonl has all."
    return [Table.of("Graph servers", graph, note), Table.of("Parameter servers", parameters, _PARAMETERS_NOTE)]


def _evenness(name: str, found: Loads) -> str:
    """Describe the late and the busiest server of a variant."""
    waits, busy, late = found.waits, found.graph["busy"], "no server" if found.late is None else f"server {found.late}"
    range_ = f"{duration(waits.min())} to {duration(waits.max())} of {duration(found.epoch_seconds)}"
    text = f"{name}: {late} is late (an interval waits {range_})"
    if busy.any():
        text += f"; server {busy.idxmax()} is busiest ({busy.max() / busy.mean():.2f} × the mean)"
    return f"{text}."


def _lags(rows: Mapping[str, int]) -> str:
    whole = sum(rows.values())
    return ", ".join(f"{lag}: {100 * rows[lag] / whole:.0f} %" for lag in sorted(rows, key=int)) if whole else DASH


def _count(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
