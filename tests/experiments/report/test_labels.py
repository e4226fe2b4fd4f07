"""Labels of all figures of reports: none covers another, a curve or a bar, and none is cut; judged by their geometry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from support import labels
from support.reports import LONG, TARGET, TEXT, written_report

from dorylax.experiments.report import figures
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

    def noted(draw: Draw, width: float) -> str:
        kinds[draw.__qualname__, width] += 1
        if kinds[draw.__qualname__, width] <= SOME:
            found.append((draw, width))
        return "<svg></svg>"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "svg", noted)
        patch.setattr(figures, "png", lambda *_: b"")
        STUDIES[request.param](tmp_path_factory.mktemp("labels"))
    assert len({width for _, width in found}) == 2
    return found


def test_labels_cover_nothing_and_none_is_cut(drawn: list[tuple[Draw, float]]) -> None:
    wrong = []
    for draw, width in drawn:
        with figures.styled():
            figure = draw(width)
            wrong += [(width, "over", pair) for pair in labels.over_each_other(figure)]
            wrong += [(width, "in axes", text) for text in labels.over_what_is_drawn(figure)]
            wrong += [(width, "cut", text) for text in labels.cut(figure)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "letters", "lines"),
    [
        ("async S=1, oscillation_limit=0.25", 20, ["async S=1,", "oscillation_limit=", "0.25"]),
        ("async S=1, oscillation_limit=0.25", 12, ["async S=1,", "oscillation_", "limit=0.25"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("short", 20, ["short"]),
        ("", 20, [""]),
    ],
)
def test_long_names_break_between_their_words(text: str, letters: int, lines: list[str]) -> None:
    assert figures.fold(text, letters).split("\n") == lines


def test_what_is_looked_for_is_found() -> None:
    figure = Figure((4, 3))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    axes.text(0.5, 0.5, "on the curve")
    axes.text(0.52, 0.5, "and on that")
    axes.set_ylabel("a label that is far too long for the height of the figure that it stands in")
    assert ("on the curve", "and on that") in labels.over_each_other(figure)
    assert set(labels.over_what_is_drawn(figure)) == {"on the curve", "and on that"}
    assert any(text.startswith("a label") for text in labels.cut(figure))
