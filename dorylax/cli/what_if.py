"""`dorylax simulate --what-if`: a scenario at the points of a grid, as a table, files, and a page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dorylax.machine import cores
from dorylax.observers.progress import bar, dollars, duration
from dorylax.signals import terminations
from dorylax.store.durable import write_file
from dorylax.terminal.failures import INTERRUPTED, TERMINATED, stop
from dorylax.terminal.files import will_read
from dorylax.terminal.output import print_json, print_rows

if TYPE_CHECKING:
    from dorylax.simulation.choice import Wishes
    from dorylax.simulation.grid import Grid, Point
    from dorylax.simulation.scenario import Scenario
    from dorylax.simulation.search import Search, Tried

_POINTS = 100
_JOBS = 4
"""Processes by default, at most: each takes half a gigabyte or more."""


def search_grid(
    *,
    name: str,
    grid: str,
    epochs: int | None,
    points: int | None,
    jobs: int | None,
    budget: str | None,
    deadline: str | None,
    csv: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Search a grid, print and write the results; arguments are those of `dorylax simulate`.

    Raises:
        ScenarioError, ConfigError: The scenario is impossible; or no point is within budget and deadline (raised last).
        click.exceptions.Exit: Ctrl-C or SIGTERM stopped the search; existing results were shown.
    """
    from dorylax.simulation.choice import Wishes, dollars_of, seconds_of
    from dorylax.simulation.grid import Grid
    from dorylax.simulation.scenario import ScenarioError
    from dorylax.simulation.settings import load

    wishes = Wishes(None if budget is None else dollars_of(budget), None if deadline is None else seconds_of(deadline))
    axes = Grid.parse(grid)
    scenario = load(name)
    will_read(*scenario.config.dotted().values())
    with terminations() as came:
        search = _searched(scenario, axes, epochs, points or _POINTS, jobs)
    picked, nothing = None, None
    try:
        picked = search.pick(*wishes)
    except ScenarioError as error:
        nothing = error
    if as_json:
        print_json(_content(search, wishes, picked))
    else:
        if search.known:
            _show(search, picked)
        for one in search.tried:
            if one.reason is not None:
                click.echo(f"does not fit: {one.point.label(search.grid.axes)}: {one.reason}")
        if picked is not None:
            click.echo(f"picked, {wishes}: {search.priced(picked)}")
            if assumptions := picked.of(scenario).assumptions():
                click.echo(f"assumptions: {assumptions}")
    if csv is not None:
        from dorylax.experiments.table import to_csv
        from dorylax.simulation.search import COLUMNS

        write_file(csv, to_csv(list(COLUMNS), search.rows()))
    if report is not None and search.known:
        from dorylax.experiments.report.what_if import write_what_if

        given = {"epochs": epochs, "points": points, "budget": budget, "deadline": deadline, "report": report}
        words = [word for key, value in given.items() if value is not None for word in (f"--{key}", str(value))]
        command = shlex.join(["dorylax", "simulate", "--scenario", name, "--what-if", grid, *words])
        files = [(f"The scenario: {Path(name).name}", Path(name).read_text(encoding="utf-8"))]
        write_what_if(search, report, picked=picked, wishes=wishes, command=command, files=files)
        if not as_json:
            click.echo(f"report: {report}")
    if not search.complete:
        stopped, code = ("terminated", TERMINATED) if came else ("interrupted", INTERRUPTED)
        stop(f"{stopped}: {len(search.tried)} of {search.points} points were simulated", code)
    if nothing is not None:
        raise nothing


def _searched(scenario: Scenario, grid: Grid, epochs: int | None, points: int, jobs: int | None) -> Search:
    from dorylax.simulation.search import usual_epochs, what_if

    work = {point: point.work * (epochs or usual_epochs(point)) for point in grid.points(scenario, points)}
    worked: list[int] = []
    with bar(scenario.name) as progress:
        progress(0, sum(work.values()), f"0/{len(work)} points")

        def tried(one: Tried) -> None:
            worked.append(work[one.point])
            progress(sum(worked), sum(work.values()), f"{len(worked)}/{len(work)} points")

        jobs = min(cores(), _JOBS) if jobs is None else jobs
        return what_if(scenario, grid, epochs=epochs, points=points, jobs=jobs, on_tried=tried)


def _content(search: Search, wishes: Wishes, picked: Point | None) -> dict[str, Any]:
    places = {one.point: place for place, one in enumerate(search.tried)}
    return {
        "schema": 1,
        "scenario": search.name,
        "what_if": {axis: list(values) for axis, values in search.grid.axes.items()},
        "complete": search.complete,
        "num_points": search.points,
        "points": search.rows(),
        "front": [places[point] for point in search.front],
        "budget_dollars": wishes.budget,
        "deadline_seconds": wishes.deadline,
        "picked": None if picked is None else {"place": places[picked], **search.at(picked).to_dict()},
    }


def _show(search: Search, picked: Point | None) -> None:
    axes, front = search.grid.axes, set(search.front)
    points = sorted(search.known, key=lambda one: one[1].seconds)
    rows = []
    for point, found in points:
        bill = found.bill
        parts = (bill.total, bill.function_time + bill.function_requests, bill.graph_servers, bill.parameter_servers)
        values = {axis: getattr(point, axis) for axis in axes}
        cells = ["–" if one is None or (axis == "functions" and not one) else str(one) for axis, one in values.items()]
        cells += [duration(found.seconds), duration(found.epoch), *(dollars(part) if part else "–" for part in parts)]
        cells.append("–" if found.value is None else f"{found.value:.3g}")
        rows.append([*cells, "●" * (point in front) + " picked" * (point == picked)])
    some = points[0][1]
    columns = ("time", "an epoch", "cost", "functions", "graph servers", "parameter servers", "value", "")
    print_rows(
        [*(axis.replace("_", " ") for axis in axes), *columns],
        rows,
        f"{search.name}: {some.total_epochs} epochs at {len(points)} points, fastest first, prices of "
        f"{some.cluster.prices_as_of}; ● on the Pareto front of time and dollars",
        left=("",),
        bold=[number for number, (point, _) in enumerate(points) if point in front],
    )
