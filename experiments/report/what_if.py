"""The page of a what-if: the Pareto front of time and dollars, the picked point, and where its time and money go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from dorylax.experiments.report.charts import stacked_bars
from dorylax.experiments.report.figures import NamedFigure, legend, logarithmic, one_axes
from dorylax.experiments.report.inside import breakdown_figure
from dorylax.experiments.report.page import Section, Table, render
from dorylax.figure_style import INK, MUTED, SERIES, series
from dorylax.observers.progress import dollars, duration
from dorylax.simulation.choice import Wishes
from dorylax.simulation.grid import Point
from dorylax.simulation.result import Simulated
from dorylax.simulation.search import Search
from dorylax.store.durable import write_file
from dorylax.terminal.output import percent
from dorylax.version import __version__

_LOGARITHMIC = 8.0  # from this ratio of the largest to the smallest on, an axis is logarithmic
_COLORED = ("backend", "mode", "graph_server", "staleness", "servers", "parameter_servers", "functions", "intervals")
_SHOWN_TASKS = 12


def write_what_if(
    search: Search,
    path: Path,
    *,
    picked: Point | None,
    wishes: Wishes,
    command: str,
    files: Sequence[tuple[str, str]],
) -> None:
    """Write the page of a search.

    Args:
        search: The search; at least one point is known.
        path: The page.
        picked: A point of the front; None if no point is within the wishes.
        wishes: Budget and deadline.
        command: The command that runs it again.
        files: Titles and texts of files to show.

    Raises:
        OSError: The file cannot be written.
    """
    found, axes = search.known[0][1], search.grid.axes
    refused = [one for one in search.tried if one.found is None]
    answer, *others = _sentences(search, picked, wishes)
    top = Section(
        "", others, [front_figure(search, picked, wishes)], [points_table("The front", search, search.front, picked)]
    )
    sections = [Section("", [], [cost_figure(search)])]
    if picked is not None:
        sections.append(_picked(search, picked))
    by_time = sorted((point for point, _ in search.known), key=lambda point: search.at(point).seconds)
    sections.append(Section("All points", [], [], [points_table("", search, by_time, picked)]))
    if refused:
        rows = [{"point": one.point.label(axes), "why": one.reason or ""} for one in refused]
        sections.append(Section("Points that do not fit", [], [], [Table.of("", rows)]))
    values = "; ".join(f"{axis.replace('_', ' ')} {', '.join(map(str, of))}" for axis, of in axes.items())
    state = f"{len(search.tried)} of {search.points} points simulated"
    state += f", {len(refused)} of which do not fit" if refused else ""
    page = render(
        title=f"What if: {search.name}",
        answers=[answer],
        top=top,
        description=f"{found.total_epochs} epochs each with {values}.",
        state=f"{state}. Times are simulated; prices are those of {found.cluster.prices_as_of}.",
        sections=sections,
        commands=[command],
        files=files,
        environment=[("dorylax", __version__), ("cluster", found.cluster.name)],
    )
    write_file(path, page)


def _sentences(search: Search, picked: Point | None, wishes: Wishes) -> list[str]:
    sentences = [
        f"Picked, {wishes}: {search.priced(picked)}." if picked is not None else f"Nothing is {wishes.within}."
    ]
    fastest, cheapest = search.front[0], search.front[-1]
    if fastest == cheapest:
        sentences.append(f"Fastest and cheapest: {search.priced(fastest)}.")
    else:
        sentences.append(f"Fastest: {search.priced(fastest)}. Cheapest: {search.priced(cheapest)}.")
    if "staleness" in search.grid.axes or "mode" in search.grid.axes:
        sentences.append(
            "All points have as many epochs. Stale or asynchronous training may need more of them to the same accuracy, "
            "which a simulation does not know."
        )
    return sentences


def front_figure(search: Search, picked: Point | None, wishes: Wishes) -> NamedFigure:
    """Dollars over time of all points, with the front as a line.

    Args:
        search: The search; at least one point is known.
        picked: A point with a ring around it; None for no ring.
        wishes: Budget and deadline, drawn as lines.
    """
    front, axis = set(search.front), _colored(search)
    data = pandas.DataFrame(
        [
            {
                "point": point.label(search.grid.axes),
                "group": "points" if axis is None else point.label([axis]),
                "seconds": found.seconds,
                "dollars": found.bill.total,
                "front": point in front,
                "picked": point == picked,
            }
            for point, found in search.known
        ]
    )

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

    text = "Dollars over time of all points. On the Pareto front, the fastest first: " + "; ".join(
        search.priced(point) for point in search.front
    )
    return NamedFigure("front", "Time and dollars; filled points are on the Pareto front", text, draw, data)


def _colored(search: Search) -> str | None:
    """The axis that colors show: the first that varies and has few enough values."""
    for axis in _COLORED:
        values = {getattr(point, axis) for point, _ in search.known}
        if axis in search.grid.axes and 1 < len(values) < len(SERIES):
            return axis
    return None


def cost_figure(search: Search) -> NamedFigure:
    """The cost of the points on the front by rented resource, a bar each."""
    bars = {point.label(search.grid.axes): _split(search.at(point)) for point in search.front}
    parts = [part for part in next(iter(bars.values())) if any(bar[part] for bar in bars.values())]
    colors = {part: series(1 + list(next(iter(bars.values()))).index(part)) for part in parts}
    labels = [dollars(sum(bar.values())) for bar in bars.values()]
    title = "Cost of the front, from the fastest to the cheapest"
    return stacked_bars("cost", title, bars, "US dollars", colors=colors, labels=labels)


def points_table(title: str, search: Search, points: Sequence[Point], picked: Point | None) -> Table:
    """A row for each point.

    Args:
        title: Heading.
        search: The search with their results.
        points: In the order of the rows.
        picked: The marked point; None for no mark.
    """
    front = set(search.front)
    rows = []
    for point in points:
        found = search.at(point)
        rows.append(
            {
                "point": point.label(search.grid.axes),
                "": "◀ " * (point == picked) + "●" * (point in front),
                "time": duration(found.seconds),
                "an epoch": duration(found.epoch),
                "cost": dollars(found.bill.total),
                **{part: dollars(amount) if amount else "–" for part, amount in _split(found).items()},
                "value": "–" if found.value is None else f"{found.value:.3g}",
                "servers busy": percent(found.utilisation.graph_servers),
                "functions busy": percent(found.utilisation.functions) if point.functions else "–",
            }
        )
    note = "●: on the Pareto front. ◀: picked. Value: 1/(time · cost), per second and dollar. Times are simulated."
    return Table.of(title, rows, note)


def _picked(search: Search, picked: Point) -> Section:
    """Build the section on time and cost of the selected point and of the ends of the front."""
    found = search.at(picked)
    split = {part: amount for part, amount in _split(found).items() if amount}
    costs = [
        {"resource": part, "cost": dollars(amount), "share": percent(amount / found.bill.total)}
        for part, amount in split.items()
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
    compared = {"picked": picked, "fastest": search.front[0], "cheapest": search.front[-1]}
    bars = {
        f"{what}: {point.label(search.grid.axes)}": _task_seconds(search.at(point))
        for what, point in compared.items()
        if what == "picked" or point != picked
    }
    figure = breakdown_figure(bars, "picked-", {})
    return Section(
        f"Picked: {picked.label(search.grid.axes)}",
        [],
        [figure],
        [Table.of("Cost", costs), Table.of("Time of tasks", tasks, note)],
    )


def _split(found: Simulated) -> dict[str, float]:
    """Dollars by rented resource."""
    bill = found.bill
    functions = bill.function_time + bill.function_requests
    return {"functions": functions, "graph servers": bill.graph_servers, "parameter servers": bill.parameter_servers}


def _task_seconds(found: Simulated) -> dict[str, float]:
    """Seconds in an epoch by kind of task."""
    seconds: dict[str, float] = {}
    for task in found.tasks:
        kind = task.resource if task.resource == "network" else task.name
        seconds[kind] = seconds.get(kind, 0.0) + task.seconds / len(found.epochs)
    return seconds
