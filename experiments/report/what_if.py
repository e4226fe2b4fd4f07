"""The page of a what-if: the Pareto front of time and dollars, what was picked from it, and where its time and money go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from dorylax.experiments.report import theme
from dorylax.experiments.report.figures import NamedFigure, folded_names, legend, legend_below, one_axes, row_labels
from dorylax.experiments.report.inside import breakdown_figure
from dorylax.experiments.report.page import Report, Section, render
from dorylax.experiments.report.tables import NONE, TextTable
from dorylax.observers.progress import dollars, duration
from dorylax.simulation.choice import Wishes
from dorylax.simulation.grid import Point
from dorylax.simulation.result import Simulated
from dorylax.simulation.search import Search
from dorylax.store.durable import write_file
from dorylax.terminal.output import percent
from dorylax.version import __version__

_LOGARITHMIC = 8.0
"""From this ratio of the largest to the smallest an axis is logarithmic."""
_PARTS = ("functions", "graph servers", "parameter servers")
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
    """Writes the page of a search.

    Args:
        search: at least one of its points is known.
        path: of the page.
        picked: a point of the front; None where nothing is within the wishes.
        wishes: what was asked for.
        command: how to run it again.
        files: titles and texts.

    Raises:
        OSError: the file cannot be written.
    """
    write_file(path, render(_report(search, picked, wishes, command, files)))


def _report(
    search: Search, picked: Point | None, wishes: Wishes, command: str, files: Sequence[tuple[str, str]]
) -> Report:
    any_found = search.known[0][1]
    refused = [one for one in search.tried if one.found is None]
    answer, *others = _sentences(search, picked, wishes)
    sections = [
        Section("", others, [], [front_figure(search, picked, wishes)]),
        Section("The front", [], [("", points_table(search, search.front, picked))], [cost_figure(search)]),
    ]
    if picked is not None:
        sections.append(_picked(search, picked))
    by_time = sorted((point for point, _ in search.known), key=lambda point: search.at(point).seconds)
    sections.append(Section("All points", [], [("", points_table(search, by_time, picked))], []))
    if refused:
        rows = [[one.point.label(search.grid.axes), one.reason or ""] for one in refused]
        sections.append(Section("What does not fit", [], [("", TextTable(["point", "why"], rows, ""))], []))
    values = "; ".join(f"{axis.replace('_', ' ')} {', '.join(map(str, of))}" for axis, of in search.grid.axes.items())
    state = f"{len(search.tried)} of {search.points} points simulated"
    state += f", {len(refused)} of which do not fit" if refused else ""
    return Report(
        title=f"What if: {search.name}",
        answers=[answer],
        description=f"{any_found.total_epochs} epochs each with {values}.",
        state=f"{state}. Times are simulated, in virtual time; prices are those of {any_found.cluster.prices_as_of}.",
        failures=[],
        warnings=[],
        sections=sections,
        commands=[command],
        files=files,
        environment=[("dorylax", __version__), ("cluster", any_found.cluster.name)],
    )


def _sentences(search: Search, picked: Point | None, wishes: Wishes) -> list[str]:
    sentences = [
        f"Picked, {wishes}: {search.priced(picked)}." if picked is not None else f"Nothing is {wishes.within}."
    ]
    fastest, cheapest = search.front[0], search.front[-1]
    if fastest == cheapest:
        sentences.append(f"Fastest and cheapest: {search.priced(fastest)}.")
    else:
        sentences += [f"Fastest: {search.priced(fastest)}.", f"Cheapest: {search.priced(cheapest)}."]
    if "staleness" in search.grid.axes or "mode" in search.grid.axes:
        sentences.append(
            "All points have as many epochs. Stale or asynchronous training may need more of them to the same accuracy, "
            "which a simulation does not know."
        )
    return sentences


def front_figure(search: Search, picked: Point | None, wishes: Wishes) -> NamedFigure:
    """Dollars over time of all points, with the front as a line.

    Args:
        search: at least one of its points is known.
        picked: a ring around it; None: none.
        wishes: lines that a budget and a deadline draw.
    """
    front = set(search.front)
    axis = _coloured(search)
    groups = list(dict.fromkeys(_group(point, axis) for point, _ in search.known))

    def draw(width: float) -> Figure:
        figure, axes = one_axes(width, 0.6)
        prices = [(search.at(point).seconds, search.at(point).bill.total) for point in search.front]
        axes.plot(*zip(*prices, strict=True), color=theme.MUTED.light, linewidth=1.2, drawstyle="steps-post", zorder=1)
        for place, group in enumerate(groups):
            mine = [(point, found) for point, found in search.known if _group(point, axis) == group]
            colour = theme.series(1 + place)
            for on_front in (False, True):
                shown = [(found.seconds, found.bill.total) for point, found in mine if (point in front) is on_front]
                axes.scatter(
                    [seconds for seconds, _ in shown],
                    [amount for _, amount in shown],
                    s=44 if on_front else 20,
                    facecolors=colour if on_front else "none",
                    edgecolors=colour,
                    linewidths=1.1,
                    zorder=3 if on_front else 2,
                )
            axes.scatter([], [], s=44, color=colour, label=group)
        if picked is not None:
            found = search.at(picked)
            axes.scatter(
                found.seconds,
                found.bill.total,
                s=190,
                facecolors="none",
                edgecolors=theme.INK.light,
                linewidths=1.6,
                label="picked",
            )
        for limit, line in ((wishes.deadline, axes.axvline), (wishes.budget, axes.axhline)):
            if limit is not None:
                line(limit, color=theme.INK.light, linewidth=1, linestyle=(0, (4, 3)))
        for which, values in (
            ("x", [price.seconds for price in search.prices]),
            ("y", [price.dollars for price in search.prices]),
        ):
            if min(values) > 0 and max(values) / min(values) >= _LOGARITHMIC:
                getattr(axes, f"set_{which}scale")("log")
                ticks = getattr(axes, f"{which}axis")
                ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                ticks.set_major_formatter("{x:g}")
                ticks.set_minor_formatter(NullFormatter())
        axes.set_xlabel("seconds of the whole run")
        axes.set_ylabel("US dollars")
        legend(figure, axes, width)
        return figure

    text = "Dollars over time of all points. On the Pareto front, the fastest first: " + "; ".join(
        search.priced(point) for point in search.front
    )
    return NamedFigure("front", "Time and dollars: filled are those that nothing beats in both", text, draw)


def _coloured(search: Search) -> str | None:
    """The axis that colours stand for: the first that varies, words before counts; None where there are too many colours."""
    for axis in (
        "backend",
        "mode",
        "graph_server",
        "staleness",
        "servers",
        "parameter_servers",
        "functions",
        "intervals",
    ):
        values = {getattr(point, axis) for point, _ in search.known}
        if axis in search.grid.axes and 1 < len(values) < len(theme.SERIES):
            return axis
    return None


def _group(point: Point, axis: str | None) -> str:
    return "points" if axis is None else point.label([axis])


def cost_figure(search: Search) -> NamedFigure:
    """What the points of the front cost, by what is rented: a bar each."""
    bars = [_split(search.at(point)) for point in search.front]
    kinds = [place for place in range(len(_PARTS)) if any(bar[place] for bar in bars)]

    def draw(width: float) -> Figure:
        names, lines = folded_names([point.label(search.grid.axes) for point in search.front], width)
        figure = Figure((width, max(0.3, 0.17 * lines) * len(bars) + 1.0), layout="constrained")
        axes = figure.subplots()
        for row, bar in enumerate(bars):
            left = 0.0
            for place in kinds:
                axes.barh(row, bar[place], left=left, color=theme.series(1 + place), height=0.62)
                left += bar[place]
        for place in kinds:
            axes.barh(0, 0, color=theme.series(1 + place), label=_PARTS[place])
        axes.set_yticks(range(len(bars)), names)
        axes.invert_yaxis()
        row_labels(axes, [dollars(sum(bar)) for bar in bars])
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("US dollars")
        legend_below(figure, *axes.get_legend_handles_labels(), width)
        return figure

    text = "; ".join(
        f"{point.label(search.grid.axes)}: " + ", ".join(f"{_PARTS[place]} {dollars(bar[place])}" for place in kinds)
        for point, bar in zip(search.front, bars, strict=True)
    )
    return NamedFigure("cost", "What the front costs, from the fastest to the cheapest", text, draw)


def points_table(search: Search, points: Sequence[Point], picked: Point | None) -> TextTable:
    """A row for each point.

    Args:
        search: which knows them.
        points: in the order of the rows.
        picked: marked; None: none.
    """
    front = set(search.front)
    rows = []
    for point in points:
        found = search.at(point)
        marks = "◀ " * (point == picked) + "●" * (point in front)
        rows.append(
            [
                point.label(search.grid.axes),
                marks,
                duration(found.seconds),
                duration(found.epoch),
                dollars(found.bill.total),
                *(dollars(part) if part else NONE for part in _split(found)),
                NONE if found.value is None else f"{found.value:.3g}",
                percent(found.utilisation.graph_servers),
                percent(found.utilisation.functions) if point.functions else NONE,
            ]
        )
    columns = ["point", "", "time", "an epoch", "cost", *_PARTS, "value", "servers busy", "functions busy"]
    return TextTable(
        columns, rows, "●: on the Pareto front. ◀: picked. Value: 1/(time · dollars), per second and dollar."
    )


def _picked(search: Search, picked: Point) -> Section:
    """Where time and money of the point go, beside those of the ends of the front."""
    found = search.at(picked)
    total = found.bill.total
    split = [
        [name, dollars(part), percent(part / total)] for name, part in zip(_PARTS, _split(found), strict=True) if part
    ]
    costs = TextTable(["what is rented", "cost", "share"], split, "")
    together = sum(task.seconds for task in found.tasks)
    tasks = [
        [
            task.name,
            task.resource,
            f"{task.number:,}",
            duration(task.seconds / task.number),
            duration(task.seconds),
            percent(task.seconds / together),
        ]
        for task in found.tasks[:_SHOWN_TASKS]
    ]
    note = f"Of the {len(found.epochs)} epochs that were simulated; tasks of all servers and functions together."
    times = TextTable(["task", "by", "how many", "each", "together", "share"], tasks, note)
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
        [("Where its money goes", costs), ("Where its time goes", times)],
        [] if figure is None else [figure],
    )


def _split(found: Simulated) -> tuple[float, float, float]:
    """Dollars, as of `_PARTS`."""
    bill = found.bill
    return bill.function_time + bill.function_requests, bill.graph_servers, bill.parameter_servers


def _task_seconds(found: Simulated) -> dict[str, float]:
    """Of an epoch, by kind of task."""
    seconds: dict[str, float] = {}
    for task in found.tasks:
        kind = task.resource if task.resource == "network" else task.name
        seconds[kind] = seconds.get(kind, 0.0) + task.seconds / len(found.epochs)
    return seconds
