from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from dorylax.experiments.report import figures
from dorylax.experiments.report.figures import PHONE, WIDE
from dorylax.experiments.report.what_if import cost_figure, front_figure, points_table, write_what_if
from dorylax.simulation.choice import Wishes
from dorylax.simulation.scenario import GraphSizes, Scenario
from dorylax.simulation.search import Search, what_if


@pytest.fixture(scope="module")
def search() -> Search:
    base = Scenario.of(
        "a <small> one",
        {"model.hidden_features": 8, "train.epochs": 20, "pipeline.mode": "async", "tensor.placement": "functions"},
        graph=GraphSizes(2000, 40_000, 30, 4),
    )
    return what_if(base, "servers=1|2|1500,functions=4,staleness=0|1,backend=functions|cpu|gpu", epochs=3)


def write(search: Search, path: Path, wishes: Wishes, *, pick: bool = True) -> str:
    picked = search.pick(*wishes) if pick else None
    write_what_if(search, path, picked=picked, wishes=wishes, command="dorylax <again>", files=[("The file", "a: <b>")])
    return path.read_text(encoding="utf-8")


def test_the_page_has_all_that_was_found(search: Search, tmp_path: Path) -> None:
    html = write(search, tmp_path / "page.html", Wishes(deadline=60.0))
    text = unescape(re.sub("<[^>]+>", " ", html))
    picked = search.pick(deadline=60.0)
    assert "a &lt;small&gt; one" in html
    assert "dorylax &lt;again&gt;" in html
    assert f"Picked, the cheapest within 1 min 00 s: {search.priced(picked)}." in text
    assert f"{len(search.tried)} of {search.points} points simulated, 6 of which do not fit" in text
    assert "All points have as many epochs" in text
    for heading in (f"Picked: {picked.label(search.grid.axes)}", "All points", "Points that do not fit"):
        assert f"<summary>{heading}</summary>" in html
    assert "<h3>The front</h3>" in html
    for one in search.tried:
        assert one.point.label(search.grid.axes) in text
        assert one.reason is None or one.reason in text
    assert not re.search(r"(?:src|href)=\"http", html)
    assert html == write(search, tmp_path / "again.html", Wishes(deadline=60.0))


def test_without_a_pick_it_says_what_there_is(search: Search, tmp_path: Path) -> None:
    html = write(search, tmp_path / "page.html", Wishes(1e-9), pick=False)
    assert "Picked" not in html
    assert "Nothing is within $1.0e-09." in html
    assert "The front" in html


def test_the_table_marks_front_and_pick(search: Search) -> None:
    points = [point for point, _ in search.known]
    frame = points_table("", search, points, search.pick()).frame
    marked = dict(zip(frame["point"], frame[""], strict=True))
    assert len(frame) == len(points)
    assert {label for label, marks in marked.items() if "●" in marks} == {
        point.label(search.grid.axes) for point in search.front
    }
    assert [label for label, marks in marked.items() if "◀" in marks] == [search.pick().label(search.grid.axes)]


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_figures_show_points_and_wishes(search: Search, width: float) -> None:
    figure = front_figure(search, search.pick(), Wishes(1.0, 1.0))
    with figures.styled():
        drawn = figure.draw(width)
    (axes,) = drawn.axes
    shown = [tuple(place) for collection in axes.collections for place in collection.get_offsets().tolist()]
    for point, found in search.known:
        times = 2 if point == search.pick() else 1
        assert shown.count((found.seconds, found.bill.total)) >= times
    labels = [text.get_text() for legend in drawn.legends for text in legend.get_texts()]
    assert labels == ["on functions", "on cpu", "on gpu", "picked"]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 2
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    for name in (figure.name, cost_figure(search).name):
        assert re.fullmatch(r"[a-z-]+", name)


def test_what_the_front_costs_is_split(search: Search) -> None:
    with figures.styled():
        (axes,) = cost_figure(search).draw(WIDE).axes
    ends = sorted(round(bar.get_x() + bar.get_width(), 12) for bar in axes.patches)
    for point in search.front:
        assert round(search.at(point).bill.total, 12) in ends
