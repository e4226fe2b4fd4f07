"""What each server of a pipeline did: tables of graph servers and parameter servers, and how evenly they were loaded."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dorylax.experiments.analysis import RunHistory
from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import NARROW, NamedFigure, folded_title, legend_below
from dorylax.experiments.report.tables import TextTable
from dorylax.observers.progress import data_size, duration
from dorylax.runs.servers import GraphServerMetrics, ParameterServerMetrics, ServerMetrics

_LISTED = 16
"""Graph servers of a variant that a table lists."""

_SHOWN = 4
"""Variants in a figure."""

_LATE = 0.05
"""Of an epoch: by how much less a server that is late waits for others than servers do on average."""

_ANSWERED = "answered"
_WAITS = {"for the epoch to be open": "gate", "for rows of others": "rows", "for weights": "weights"}


@final
@dataclasses.dataclass(frozen=True)
class GraphLoad:
    """A graph server, over all epochs of a run that its file has.

    Attributes:
        server: which.
        busy: the share of its threads' time that they ran graph tasks.
        queue, calls: mean and most, as of `GraphServerMetrics`.
        waits: seconds that an interval waited in an epoch, by what for.
        messages, message_bytes: sent in an epoch.
        rows_by_lag: of all epochs.
        in_vain: calls of tensor tasks that did not answer one, by what became of them; of all epochs.
    """

    server: int
    busy: float
    queue: tuple[float, int]
    calls: tuple[float, int]
    waits: Mapping[str, float]
    messages: float
    message_bytes: float
    rows_by_lag: Mapping[str, int]
    in_vain: Mapping[str, int]

    @property
    def waits_for_others(self) -> float:
        """Seconds that an interval waited in an epoch for what other graph servers had yet to do."""
        return self.waits["gate"] + self.waits["rows"]

    @classmethod
    def of(cls, lines: Sequence[GraphServerMetrics], seconds: float, intervals: int) -> GraphLoad:
        """From its lines, which cover so many seconds of training, and so many intervals on each server."""
        epochs = len(lines)
        lags, calls = Counter[str](), Counter[str]()
        for line in lines:
            lags.update(line.rows_by_lag)
            calls.update(line.calls)
        del calls[_ANSWERED]
        return cls(
            lines[0].server,
            _share(sum(line.graph_seconds / line.graph_threads for line in lines), seconds),
            _mean_and_most([(one.graph_queue_mean, one.graph_queue_max, one.graph_tasks) for one in lines]),
            _mean_and_most([(one.tensor_calls_mean, one.tensor_calls_max, one.tensor_tasks) for one in lines]),
            {
                wait: sum(getattr(line, f"{wait}_seconds") for line in lines) / epochs / intervals
                for wait in _WAITS.values()
            },
            sum(line.messages for line in lines) / epochs,
            sum(line.message_bytes for line in lines) / epochs,
            lags,
            calls,
        )


@final
@dataclasses.dataclass(frozen=True)
class ParameterLoad:
    """A parameter server, over all epochs of a run that its file has.

    Attributes:
        server: which.
        busy: the share of the time that it computed.
        counts: per epoch, by the name of the field of `ParameterServerMetrics`.
        stashes_max: the most.
    """

    server: int
    busy: float
    counts: Mapping[str, float]
    stashes_max: int

    @classmethod
    def of(cls, lines: Sequence[ParameterServerMetrics], seconds: float) -> ParameterLoad:
        """From its lines, which cover so many seconds of training."""
        names = ("pulls", "pulls_held", "pushes", "updates", "bytes_received", "bytes_sent")
        return cls(
            lines[0].server,
            _share(sum(line.busy_seconds for line in lines), seconds),
            {name: sum(getattr(line, name) for line in lines) / len(lines) for name in names},
            max(line.stashes_max for line in lines),
        )


class Loads(NamedTuple):
    """The servers of one run.

    Attributes:
        graph, parameters: by their numbers.
        epoch_seconds: how long an epoch takes.
    """

    graph: Sequence[GraphLoad]
    parameters: Sequence[ParameterLoad]
    epoch_seconds: float

    @property
    def late(self) -> GraphLoad | None:
        """The graph server for which the others wait: who is late waits for nobody. None where all wait alike."""
        waits = [one.waits_for_others for one in self.graph]
        if fmean(waits) - min(waits) <= _LATE * self.epoch_seconds:
            return None
        return self.graph[waits.index(min(waits))]

    @classmethod
    def of(cls, run: RunHistory, lines: Sequence[ServerMetrics]) -> Loads | None:
        """From the lines of its servers.jsonl; None where there is nothing in them."""
        epochs = {line.epoch for line in lines}
        seconds = sum(record.seconds for record in run.history if record.epoch in epochs)
        pipeline = run.run.config.pipeline
        if not lines or pipeline is None:
            return None
        graph: dict[int, list[GraphServerMetrics]] = {}
        parameters: dict[int, list[ParameterServerMetrics]] = {}
        for line in lines:
            if isinstance(line, GraphServerMetrics):
                graph.setdefault(line.server, []).append(line)
            else:
                parameters.setdefault(line.server, []).append(line)
        return cls(
            [GraphLoad.of(graph[server], seconds, pipeline.intervals) for server in sorted(graph)],
            [ParameterLoad.of(parameters[server], seconds) for server in sorted(parameters)],
            seconds / len(epochs),
        )


def server_tables(loads: Mapping[str, Loads]) -> list[tuple[str, TextTable]]:
    """Graph servers and parameter servers, with the tables' titles; none where there are no servers.

    Args:
        loads: by variant.
    """
    if not loads:
        return []
    return [("Graph servers", _graph_table(loads)), ("Parameter servers", _parameter_table(loads))]


def _graph_table(loads: Mapping[str, Loads]) -> TextTable:
    listed = {name: _listed(found.graph) for name, found in loads.items()}
    every = [one for servers in listed.values() for one in servers]
    stale = any(set(one.rows_by_lag) - {"0"} for one in every)
    in_vain = any(one.in_vain for one in every)
    columns = [
        "server",
        "threads busy",
        "tasks queued",
        "tensor tasks",
        *(f"waits: {wait}" for wait in _WAITS.values()),
    ]
    columns += ["messages", "sent"] + ["rows by lag"] * stale + ["calls in vain"] * in_vain
    rows = []
    for name, servers in listed.items():
        for one in servers:
            row = [_row_name(loads, name, one.server), f"{100 * one.busy:.1f} %"]
            row += [f"{mean:.1f} (≤ {most})" for mean, most in (one.queue, one.calls)]
            row += [duration(one.waits[wait]) for wait in _WAITS.values()]
            row += [f"{one.messages:.0f}", data_size(one.message_bytes)]
            row += [_lags(one.rows_by_lag)] * stale
            row += [", ".join(f"{count} {what}" for what, count in one.in_vain.items()) or "0"] * in_vain
            rows.append(row)
    note = (
        "Of the first run of each variant, over its epochs. Busy: the share of the time of a server's graph threads. "
        "Queued, tensor tasks: how many waited for a thread, were under way, when one came, itself included, on average "
        "(and at most). Waits, of one interval in an epoch: at the gate, until the epoch is open to it; for rows and sums "
        "of others; for its weights. Messages and bytes: to other graph servers, in an epoch."
    )
    if stale:
        note += " Lag: the epochs that a row is behind its reader."
    if in_vain:
        note += " Calls in vain: of tensor tasks that another call answered, in all epochs."
    if any(len(found.graph) > 1 for found in loads.values()):
        note += " A server is late where its intervals wait less for others than others do, which wait for it. "
        note += "; ".join(_evenness(name, found) for name, found in loads.items() if len(found.graph) > 1) + "."
    if any(len(servers) < len(loads[name].graph) for name, servers in listed.items()):
        note += f" Of more than {_LISTED} servers those are listed that wait least; servers.jsonl has them all."
    return TextTable(columns, rows, note)


def _listed(servers: Sequence[GraphLoad]) -> list[GraphLoad]:
    by_wait = sorted(servers, key=lambda one: (one.waits_for_others, one.server))
    return sorted(by_wait[:_LISTED], key=lambda one: one.server)


def _evenness(name: str, found: Loads) -> str:
    """Which server of a variant is late, and which the busiest."""
    waits, busy = [one.waits_for_others for one in found.graph], [one.busy for one in found.graph]
    if (late := found.late) is None:
        text = f"none is late (they wait {duration(min(waits))} to {duration(max(waits))}"
    else:
        text = f"server {late.server} is late (it waits {duration(min(waits))}, the mean is {duration(fmean(waits))}"
    text += f", of {duration(found.epoch_seconds)} an epoch)"
    if any(busy):
        busiest = found.graph[busy.index(max(busy))].server
        text += f", and server {busiest} is the busiest ({max(busy) / fmean(busy):.2f} × the mean)"
    return f"{name}: {text}"


def _parameter_table(loads: Mapping[str, Loads]) -> TextTable:
    every = [one for found in loads.values() for one in found.parameters]
    held = any(one.counts["pulls_held"] for one in every)
    columns = ["server", "busy", "pulls", *["of these held"] * held, "pushes", "updates", "received", "sent", "stashes"]
    rows = []
    for name, found in loads.items():
        for one in found.parameters:
            row = [_row_name(loads, name, one.server), f"{100 * one.busy:.1f} %", _count(one.counts["pulls"])]
            row += [_count(one.counts["pulls_held"])] * held
            row += [_count(one.counts[what]) for what in ("pushes", "updates")]
            row += [data_size(one.counts[what]) for what in ("bytes_received", "bytes_sent")]
            rows.append([*row, f"≤ {one.stashes_max}"])
    note = "Of the same runs, per epoch. Stashes: the most intervals that held a version of the weights at a time."
    if held:
        note += (
            " Held: the stability gate was closed, so the interval waited for the newest weights and for exact rows."
        )
    return TextTable(columns, rows, note)


def server_figure(loads: Mapping[str, Loads], name: str) -> NamedFigure | None:
    """How evenly graph servers are loaded: how busy their threads are, and what their intervals wait for.

    Args:
        loads: by variant.
        name: for its file.

    Returns:
        None where no variant has several graph servers.
    """
    shown = dict([(variant, found) for variant, found in loads.items() if len(found.graph) > 1][:_SHOWN])
    if not shown:
        return None

    def draw(width: float) -> Figure:
        panels = (_draw_busy, _draw_waits)
        columns = len(panels) if width >= NARROW else 1
        rows = len(shown) * len(panels) // columns
        figure = Figure((width, 1.75 * rows + 0.4), layout="constrained")
        grid = np.ravel(np.asarray(figure.subplots(rows, columns, sharex=False, squeeze=False)))
        every = [one for found in shown.values() for one in found.graph]
        tops = (max(100 * one.busy for one in every), max(sum(one.waits.values()) for one in every))
        for place, axes in enumerate(grid):
            variant = list(shown)[place // len(panels)]
            panels[place % len(panels)](axes, shown[variant].graph)
            axes.set_ylim(0, 1.05 * tops[place % len(panels)] or 1.0)  # the same for all variants
            axes.set_title(folded_title(variant, width / columns))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            axes.grid(axis="x", visible=False)
        for axes in grid[-columns:]:
            axes.set_xlabel("graph server")
        handles = [grid[0].bar(0, 0, color=theme.series(1 + place)) for place in range(len(_WAITS))]
        legend_below(figure, handles, [f"waits {what}" for what in _WAITS], width)
        return figure

    parts = [f"{variant}: " + ", ".join(map(_told, found.graph)) for variant, found in shown.items()]
    title = "How evenly servers are loaded"
    text = (
        f"{title}: for each graph server how busy its threads are, and how long one of its intervals waits in an epoch. "
        + "; ".join(parts)
    )
    return NamedFigure(f"{name}servers", title, text, draw)


def _draw_busy(axes: Axes, servers: Sequence[GraphLoad]) -> None:
    axes.bar([one.server for one in servers], [100 * one.busy for one in servers], 0.7, color=theme.series(0))
    axes.set_ylabel("threads busy, %")


def _draw_waits(axes: Axes, servers: Sequence[GraphLoad]) -> None:
    bottom = np.zeros(len(servers))
    for place, wait in enumerate(_WAITS.values()):
        heights = np.asarray([one.waits[wait] for one in servers])
        axes.bar([one.server for one in servers], heights, 0.7, bottom=bottom, color=theme.series(1 + place))
        bottom += heights
    axes.set_ylabel("seconds waited")


def _told(one: GraphLoad) -> str:
    return f"server {one.server} {100 * one.busy:.0f} %, {duration(sum(one.waits.values()))}"


def _row_name(loads: Mapping[str, Any], variant: str, server: int) -> str:
    return f"{variant}: {server}" if len(loads) > 1 else str(server)


def _share(busy: float, seconds: float) -> float:
    return busy / seconds if seconds else 0.0


def _mean_and_most(counted: Sequence[tuple[float, int, int]]) -> tuple[float, int]:
    """The mean over all tasks and the most, from those of each epoch and how many tasks it had."""
    tasks = sum(number for _, _, number in counted)
    return sum(mean * number for mean, _, number in counted) / max(1, tasks), max(most for _, most, _ in counted)


def _lags(rows: Mapping[str, int]) -> str:
    whole = sum(rows.values())
    return ", ".join(f"{lag}: {100 * rows[lag] / whole:.0f} %" for lag in sorted(rows, key=int)) if whole else "–"


def _count(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
