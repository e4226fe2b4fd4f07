"""Server load of a pipeline: tables of graph servers and of parameter servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas  # type: ignore[import-untyped]

from dorylax.experiments.analysis import RunHistory
from dorylax.experiments.report.page import DASH, Table
from dorylax.observers.progress import data_size, duration
from dorylax.store.servers import GraphServerMetrics, ParameterServerMetrics, ServerMetrics

_LISTED = 16  # maximum number of graph servers per variant in a table
_LATE = 0.05  # a bottleneck waits less than the mean by more than this fraction of an epoch
_WAITS = ("gate", "rows", "weights")  # for the start of the epoch, for rows and sums of other servers, for weights


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

    def total(counts: str) -> dict[int, dict[str, int]]:
        return {server: pandas.DataFrame(list(part)).sum().astype(int).to_dict() for server, part in by_server[counts]}

    busy = (lines["graph_seconds"] / lines["graph_threads"]).groupby(lines["server"]).sum()
    calls = total("calls")
    return pandas.DataFrame(
        {
            "busy": busy / seconds if seconds else 0.0 * busy,
            "queue": mean("graph_queue_mean", "graph_tasks"),
            "queue_max": by_server["graph_queue_max"].max(),
            "calls": mean("tensor_calls_mean", "tensor_tasks"),
            "calls_max": by_server["tensor_calls_max"].max(),
            **{wait: by_server[f"{wait}_seconds"].mean() / intervals for wait in _WAITS},
            **{name: by_server[name].mean() for name in ("messages", "message_bytes")},
            "rows_by_lag": pandas.Series(total("rows_by_lag")),
            "in_vain": pandas.Series(
                {one: {key: n for key, n in of.items() if key != "answered"} for one, of in calls.items()}
            ),
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
    note = (
        "First run of each variant. Busy: share of the time of the server's graph threads. Tasks queued and tensor tasks: "
        "number waiting or under way when one arrives, mean and maximum. Waits: of an interval in an epoch, until the epoch "
        "is open, for rows and sums of other servers, and for weights. Messages, sent: to other graph servers, per epoch. "
        "Lag: epochs that a row is behind its reader. Calls in vain: calls whose answer was not used. "
    )
    note += " ".join(_evenness(name, found) for name, found in loads.items() if len(found.graph) > 1)
    if any(len(found.graph) > _LISTED for found in loads.values()):
        note += f" Of more than {_LISTED} servers the table lists those that wait least; servers.jsonl has all."
    held = (
        "Per epoch. Pulls held: the stability gate was closed, so the interval waited for exact rows. "
        "Stashes: most intervals per version."
    )
    return [Table.of("Graph servers", graph, note), Table.of("Parameter servers", parameters, held)]


def _evenness(name: str, found: Loads) -> str:
    """Describe the late and the busiest server of a variant."""
    waits, busy = found.waits, found.graph["busy"]
    text = f"{name}: server {found.late} is late" if found.late is not None else f"{name}: no server is late"
    text += (
        f" (an interval waits {duration(waits.min())} to {duration(waits.max())} of {duration(found.epoch_seconds)})"
    )
    if busy.any():
        text += f"; server {busy.idxmax()} is busiest ({busy.max() / busy.mean():.2f} × the mean)"
    return f"{text}."


def _lags(rows: Mapping[str, int]) -> str:
    whole = sum(rows.values())
    return ", ".join(f"{lag}: {100 * rows[lag] / whole:.0f} %" for lag in sorted(rows, key=int)) if whole else DASH


def _count(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
