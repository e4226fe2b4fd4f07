"""What it took to the target, relative to the baseline, beside what was published."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from support.reports import leave

from dorylax.experiments.analysis import Compared, Group, Variant
from dorylax.experiments.folder import read_study, write_sweep
from dorylax.experiments.report import figures, write_report
from dorylax.experiments.report.page import NARROW, WIDE
from dorylax.experiments.report.ratios import ratio_figure
from dorylax.experiments.report.tables import comparison_table
from dorylax.experiments.seed_statistics import Interval
from dorylax.experiments.sweep_file import read

TEXT = """\
parts:
  modes:
    description: How many epochs do they need?
    base: {data.size: tiny, train.epochs: 12, pipeline.servers: 2, pipeline.intervals: 2, pipeline.clock: virtual}
    zip: {pipeline.mode: [pipe, async, async], pipeline.staleness: [null, 0, 1]}
    compare: {baseline: {pipeline.mode: pipe}}
    published:
      source: the Journal of Modes
      points:
        - {at: {pipeline.staleness: 1}, epochs_to_target_ratio: 1.40625}
"""


def variant(name: str, ratio: float | None, dollars: float | None = None, **published: float) -> Variant:
    """One whose ratios are all this one; None: the baseline."""
    interval = None if ratio is None else Interval(ratio, ratio - 0.1, ratio + 0.1, 3)
    priced = None if dollars is None else interval
    compared = Compared(
        0.9, 3, 3, 3, 3, "", 10.0, 5.0, dollars, interval, interval, priced, None, accuracy=None, best=None, last=None
    )
    return Variant({}, name, (), 3, is_baseline=ratio is None, compared=compared, published=published)


def group(*variants: Variant) -> Group:
    return Group("", {}, variants, 0.9, "the Journal of Modes")


def diamonds(figure: Figure) -> list[list[tuple[float, float]]]:
    """Where they are, in each axes."""
    return [
        [(float(x), float(y)) for line in axes.lines if line.get_marker() == "D" for x, y in line.get_xydata()]
        for axes in figure.axes
    ]


def drawn(of: Group, width: float) -> Figure:
    made = ratio_figure(of, "")
    with figures.styled():
        return made.draw(width)


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_published_ratio_is_a_diamond_below_ours(width: float) -> None:
    figure = drawn(
        group(variant("pipe", None), variant("a", 1.2), variant("b", 1.3, epochs_to_target_ratio=1.5)), width
    )
    ((epochs, below),), seconds = diamonds(figure)
    assert (epochs, seconds) == (1.5, [])
    assert 1 < below < 1.5  # the row of b
    (legend,) = figure.legends
    lines = "95 % interval, 3 seeds, rough (Student's t)"
    assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == [
        "trained",
        "published: the Journal of Modes",
        lines,
    ]


def test_without_published_numbers_no_legend_has_them() -> None:
    of = group(variant("pipe", None), variant("a", 1.2))
    assert [len(legend.get_texts()) for legend in drawn(of, WIDE).legends] == [1]  # what lines are
    table = comparison_table(of)
    assert "published" not in table.columns
    assert "Published" not in table.note


def test_what_only_others_know_is_shown() -> None:
    """Runs on this machine cost nothing; theirs did."""
    of = group(variant("pipe", None), variant("a", 1.2, dollars_to_target_ratio=1.5))
    assert diamonds(drawn(of, WIDE)) == [[], [], [(1.5, pytest.approx(0.24))]]
    table = comparison_table(of)
    row = dict(zip(table.columns, table.rows[1], strict=True))
    assert (row["cost to target"], row["published"], row["value"]) == ("–", "1.50×", "–")


def test_published_ratios_are_columns_beside_ours() -> None:
    table = comparison_table(group(variant("pipe", None, 0.1), variant("a", 1.2, 0.1, epochs_to_target_ratio=1.5)))
    assert table.columns[:5] == ["variant", "reach it", "epochs to target", "published", "time to target"]
    assert [row[2:4] for row in table.rows] == [["10.0", "–"], ["10.0, 1.20× (1.10–1.30)", "1.50×"]]
    assert table.note.endswith(" Published: the Journal of Modes.")


def test_the_report_of_a_part_that_trains(tmp_path: Path) -> None:
    whole = read(TEXT, "made.yaml", "made")
    write_sweep(tmp_path, whole, ())
    for run in whole.runs:
        leave(tmp_path, run)
    write_report([read_study(tmp_path)], tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "- How many epochs do they need?\n- async S=0 needs " in text
    (row,) = [line for line in text.splitlines() if "1.41×" in line]
    assert row.startswith("| async S=1 | ")
    assert "published: the Journal of Modes" in (tmp_path / "figures" / "ratios.svg").read_text()
