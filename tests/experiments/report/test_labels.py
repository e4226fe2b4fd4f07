"""Labels of all figures of reports: none covers another, a curve or a bar, and none is cut; judged by their geometry."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from support.reports import LONG, TARGET, TEXT, written_report

from dorylax.experiments.names import fold
from dorylax.experiments.report import figures, page
from dorylax.experiments.report.figures import Draw
from dorylax.experiments.run import main

SIMULATED = """\
simulate: true
base:
  graph: {vertices: 2000, edges: 40000, features: 30, classes: 4}
  pipeline: {servers: 2, intervals: 3}
  simulation.epochs: 2
grid: {simulation.backend: [functions, cpu], pipeline.mode: [pipe, no-pipe], cluster.function.memory_mb: [192, 512]}
exclude: [{simulation.backend: cpu, cluster.function.memory_mb: 512}]
seeds: 2
compare: {baseline: {pipeline.mode: pipe, simulation.backend: functions, cluster.function.memory_mb: 192}}
published:
  source: a paper
  points: [{at: {pipeline.mode: no-pipe}, epoch_seconds_ratio: 1.90625, dollars_graph_servers: 0.4375}]
"""


def simulated_report(folder: Path) -> Path:
    """Of runs that take no time to simulate."""
    (folder / "s.yaml").write_text(SIMULATED)
    assert main(["--sweep", str(folder / "s.yaml"), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder / "out" / "report.html"


SOME = 2

STUDIES: dict[str, Callable[[Path], Path]] = {
    "two groups": lambda folder: written_report(folder, TARGET),
    "nothing reaches the target": lambda folder: written_report(folder, TEXT.replace("pipe}}", "pipe}, target: 0.99}")),
    "long names": lambda folder: written_report(folder, LONG),
    "accuracy": lambda folder: written_report(folder, LONG.replace("target: 0.6", "target: 0.6, asks: accuracy")),
    "simulated": simulated_report,
}


@pytest.fixture(scope="module", params=STUDIES)
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Draw, float]]:
    """The figures of a report, with the widths that they are drawn in; of each kind those of some groups."""
    found: list[tuple[Draw, float]] = []
    kinds: Counter[tuple[str, float]] = Counter()

    def noted(draw: Draw, width: float, **_: Any) -> str:
        kinds[draw.__qualname__, width] += 1
        if kinds[draw.__qualname__, width] <= SOME:
            found.append((draw, width))
        return "<svg></svg>"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "svg", noted)
        patch.setattr(page, "write_files", lambda figure, folder: None)
        STUDIES[request.param](tmp_path_factory.mktemp("labels"))
    assert len({width for _, width in found}) == 2
    return found


_TOUCH = 0.5
"""Points by which boxes may overlap: those of letters that touch."""


class Box(NamedTuple):
    """A text that is shown, and where."""

    text: str
    box: Bbox


def boxes(figure: Figure) -> list[Box]:
    """Of all texts of a figure that are drawn."""
    drawn: list[Text] = []
    draw = Text.draw

    def noted(text: Text, *arguments: Any, **options: Any) -> None:
        drawn.append(text)
        draw(text, *arguments, **options)

    canvas = FigureCanvasAgg(figure)
    with mock.patch.object(Text, "draw", noted):
        canvas.draw()
    shown = [text for text in drawn if text.get_text().strip() and text.get_visible()]
    return [Box(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown]


def _inner(box: Bbox, figure: Figure) -> Bbox:
    return box.padded(-_TOUCH * figure.dpi / 72)


def over_each_other(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that overlap."""
    found = [Box(text, _inner(box, figure)) for text, box in boxes(figure)]
    return [(one.text, other.text) for one, other in itertools.combinations(found, 2) if one.box.overlaps(other.box)]


def over_what_is_drawn(figure: Figure) -> list[str]:
    """Texts that lie where axes show their lines, bands and bars."""
    return [
        text
        for text, box in boxes(figure)
        if any(axes.axison and axes.bbox.overlaps(_inner(box, figure)) for axes in figure.axes)
    ]


def cut(figure: Figure) -> list[str]:
    """Texts that reach beyond the figure."""
    whole = figure.bbox.padded(1.0)
    return [text for text, box in boxes(figure) if not (whole.contains(*box.min) and whole.contains(*box.max))]


def test_labels_cover_nothing_and_none_is_cut(drawn: list[tuple[Draw, float]]) -> None:
    wrong = []
    for draw, width in drawn:
        with figures.styled():
            figure = draw(width)
            wrong += [(width, "over", pair) for pair in over_each_other(figure)]
            wrong += [(width, "in axes", text) for text in over_what_is_drawn(figure)]
            wrong += [(width, "cut", text) for text in cut(figure)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "letters", "lines"),
    [
        ("async S=1, gradient_share_of=0.25", 20, ["async S=1, gradient_", "share_of=0.25"]),
        ("async S=1, gradient_share=0.25", 12, ["async S=1,", "gradient_", "share=0.25"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("short", 20, ["short"]),
        ("", 20, [""]),
    ],
)
def test_long_names_break_between_their_words(text: str, letters: int, lines: list[str]) -> None:
    assert fold(text, letters).split("\n") == lines


def test_what_is_looked_for_is_found() -> None:
    figure = Figure((4, 3))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    axes.text(0.5, 0.5, "on the curve")
    axes.text(0.52, 0.5, "and on that")
    axes.set_ylabel("a label that is far too long for the height of the figure that it stands in")
    assert ("on the curve", "and on that") in over_each_other(figure)
    assert set(over_what_is_drawn(figure)) == {"on the curve", "and on that"}
    assert any(text.startswith("a label") for text in cut(figure))
