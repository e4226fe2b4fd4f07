"""The page of a what-if: the Pareto front of time and dollars, the picked point, and where its time and money go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.report.figures import NamedFigure, legend, logarithmic, one_axes, stacked_bars
from dorylax.experiments.report.inside import breakdown_figure
from dorylax.experiments.report.page import Section, Table, render
from dorylax.figure_style import INK, MUTED, SERIES, series
from dorylax.observers.progress import dollars, duration
from dorylax.simulation.choice import Wishes
from dorylax.simulation.grid import Point
from dorylax.simulation.search import Search
from dorylax.store.durable import write_file
from dorylax.terminal.output import percent
from dorylax.version import __version__

_LOGARITHMIC = 8.0  # from this ratio of the largest to the smallest on, an axis is logarithmic
_COLORED = ("backend", "mode", "graph_server", "staleness", "servers", "parameter_servers", "functions", "intervals")
_SHOWN_TASKS = 12
_PARTS = {
    name: f"{name[:-1].replace(' ', '_')}_dollars" for name in ("functions", "graph servers", "parameter servers")
}
"""Columns of the dollars for each rented resource."""
_STALE = (
    "All points have as many epochs. Stale or asynchronous training may need more of them to the same accuracy, "
    "which a simulation does not know."
)


def write_what_if(
    search: Search, path: Path, *, picked: Point | None, wishes: Wishes, command: str, files: Sequence[tuple[str, str]]
) -> None:
    """Write the page of a search with at least one known point.

    Args:
        search: The search.
        path: The page.
        picked: A point of the front; None if no point is within the wishes.
        wishes: Budget and deadline.
        command: The command that runs it again.
        files: Titles and texts of files to show.
    """
    found, axes = search.known[0][1], search.grid.axes
    refused = [one for one in search.tried if one.found is None]
    fastest, cheapest = search.front[0], search.front[-1]
    sentences = [f"Fastest: {search.priced(fastest)}. Cheapest: {search.priced(cheapest)}."]
    if fastest == cheapest:
        sentences = [f"Fastest and cheapest: {search.priced(fastest)}."]
    sentences += [_STALE] if {"staleness", "mode"} & axes.keys() else []
    front = points_table("The front", search, search.front, picked)
    sections = [Section("", [], [cost_figure(search)])]
    if picked is not None:
        sections.append(_picked(search, picked))
    by_time = sorted((point for point, _ in search.known), key=lambda point: search.at(point).seconds)
    sections.append(Section("All points", tables=[points_table("", search, by_time, picked)]))
    if refused:
        rows = [{"point": one.point.label(axes), "why": one.reason or ""} for one in refused]
        sections.append(Section("Points that do not fit", tables=[Table.of("", rows)]))
    values = "; ".join(f"{axis.replace('_', ' ')} {', '.join(map(str, of))}" for axis, of in axes.items())
    state = f"{len(search.tried)} of {search.points} points simulated"
    state += f", {len(refused)} of which do not fit" if refused else ""
    page = render(
        title=f"What if: {search.name}",
        answers=[f"Nothing is {wishes.within}." if picked is None else f"Picked, {wishes}: {search.priced(picked)}."],
        top=Section("", sentences, [front_figure(search, picked, wishes)], [front]),
        description=f"{found.total_epochs} epochs each with {values}.",
        state=f"{state}. Times are simulated; prices are those of {found.cluster.prices_as_of}.",
        sections=sections,
        commands=[command],
        files=files,
        environment=[("dorylax", __version__), ("cluster", found.cluster.name)],
    )
    write_file(path, page)


def _known(search: Search, picked: Point | None = None) -> pandas.DataFrame:
    """The rows of all points that can be simulated, with their names and whether they are picked, by point."""
    rows = pandas.DataFrame([row for row in search.rows() if row["reason"] is None])
    points = [point for point, _ in search.known]
    names = [point.label(search.grid.axes) for point in points]
    return rows.assign(point=names, picked=[point == picked for point in points]).set_axis(points)


def front_figure(search: Search, picked: Point | None, wishes: Wishes) -> NamedFigure:
    """Plot dollars over time of all points: the front as a line, a ring around a picked point, and the wishes as lines."""
    rows = _known(search, picked)
    # Colors show the first axis that varies and has few enough values.
    varied = [
        axis for axis in _COLORED if axis in search.grid.axes and 1 < rows[axis].nunique(dropna=False) < len(SERIES)
    ]
    groups = [point.label(varied[:1]) if varied else "points" for point, _ in search.known]
    data = rows.assign(group=groups)[["point", "group", "seconds", "dollars", "front", "picked"]].reset_index(drop=True)

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.5)
        steps = data[data["front"]].sort_values(["seconds", "dollars"], ascending=[True, False])
        line: dict[str, Any] = {"color": MUTED.light, "linewidth": 1.2, "drawstyle": "steps-post", "zorder": 1}
        axes.plot(steps["seconds"], steps["dollars"], **line)
        for place, group in enumerate(data["group"].unique()):
            mine, color = data[data["group"] == group], series(1 + place)
            for on_front, part in mine.groupby("front"):
                style: dict[str, Any] = {"s": 20, "facecolors": "none", "zorder": 2}
                style = {"s": 44, "facecolors": color, "zorder": 3} if on_front else style
                axes.scatter(part["seconds"], part["dollars"], edgecolors=color, linewidths=1.1, **style)
            axes.scatter([], [], s=44, color=color, label=group)
        if picked is not None:
            ring = data[data["picked"]]
            style = {"facecolors": "none", "edgecolors": INK.light, "linewidths": 1.6, "label": "picked"}
            axes.scatter(ring["seconds"], ring["dollars"], s=190, **style)
        for limit, bound in ((wishes.deadline, axes.axvline), (wishes.budget, axes.axhline)):
            if limit is not None:
                bound(limit, color=INK.light, linewidth=1, linestyle=(0, (4, 3)))
        for which, values in (("x", data["seconds"]), ("y", data["dollars"])):
            if values.min() > 0 and values.max() / values.min() >= _LOGARITHMIC:
                logarithmic(axes, which)
        axes.set(xlabel="simulated seconds of the whole run", ylabel="US dollars")
        legend(figure, axes, width)
        return figure

    text = "Dollars over time of all points. On the Pareto front, the fastest first: "
    text += "; ".join(map(search.priced, search.front))
    return NamedFigure("front", "Time and dollars; filled points are on the Pareto front", text, draw, data)


def cost_figure(search: Search) -> NamedFigure:
    """The cost of the points on the front by rented resource, a bar each."""
    rows = _known(search).loc[list(search.front)].set_index("point")
    parts = rows[list(_PARTS.values())].set_axis(list(_PARTS), axis=1)
    colors = {part: series(1 + place) for place, part in enumerate(parts) if parts[part].any()}
    title = "Cost of the front, from the fastest to the cheapest"
    bars, labels = parts.T.to_dict(), list(map(dollars, rows["dollars"]))
    return stacked_bars("cost", title, bars, "US dollars", colors=colors, labels=labels)


def points_table(title: str, search: Search, points: Sequence[Point], picked: Point | None) -> Table:
    """A row for each of these points of a search; the picked one has a mark."""
    rows = [
        {
            "point": row["point"],
            "": "◀ " * row["picked"] + "●" * row["front"],
            "time": duration(row["seconds"]),
            "an epoch": duration(row["epoch_seconds"]),
            "cost": dollars(row["dollars"]),
            **{part: dollars(row[name]) if row[name] else "–" for part, name in _PARTS.items()},
            "value": "–" if pandas.isna(row["value"]) else f"{row['value']:.3g}",
            "servers busy": percent(row["graph_server_utilisation"]),
            "functions busy": percent(row["function_utilisation"]) if row["functions"] else "–",
        }
        for row in _known(search, picked).loc[list(points)].to_dict("records")
    ]
    note = "●: on the Pareto front. ◀: picked. Value: 1/(time · cost), per second and dollar. Times are simulated."
    return Table.of(title, rows, note)


def _picked(search: Search, picked: Point) -> Section:
    """Build the section on time and cost of the selected point and of the ends of the front."""
    found, row = search.at(picked), _known(search).loc[[picked]].iloc[0]
    costs = [
        {"resource": part, "cost": dollars(row[name]), "share": percent(row[name] / row["dollars"])}
        for part, name in _PARTS.items()
        if row[name]
    ]
    together = sum(task.seconds for task in found.tasks)
    tasks = [
        {
            "task": task.name,
            "by": task.resource,
            "number": f"{task.number:,}",
            "each": duration(task.seconds / task.number),
            "together": duration(task.seconds),
            "share": percent(task.seconds / together),
        }
        for task in found.tasks[:_SHOWN_TASKS]
    ]
    note = f"In the {len(found.epochs)} epochs that were simulated, on all servers and functions together."
    bars = dict[str, dict[str, float]]()
    for title, point in {"picked": picked, "fastest": search.front[0], "cheapest": search.front[-1]}.items():
        if title == "picked" or point != picked:
            seconds, of = defaultdict[str, float](float), search.at(point)
            for task in of.tasks:
                seconds[task.resource if task.resource == "network" else task.name] += task.seconds / len(of.epochs)
            bars[f"{title}: {point.label(search.grid.axes)}"] = seconds
    tables = [Table.of("Cost", costs), Table.of("Time of tasks", tasks, note)]
    return Section(f"Picked: {picked.label(search.grid.axes)}", [], [breakdown_figure(bars, "picked-", {})], tables)
