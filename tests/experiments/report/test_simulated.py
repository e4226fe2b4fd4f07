"""The part of a report about simulated runs."""

from __future__ import annotations

import re
from pathlib import Path

import pandas
import pytest

from dorylax.experiments.run import main

TEXT = """\
description: Two parts.
simulate: true
base:
  graph: {vertices: 2000, edges: 40000, features: 30, classes: 4}
  model.hidden_features: 8
  pipeline.servers: 2
  pipeline.intervals: 3
  simulation.epochs: 2
parts:
  modes:
    description: Which mode is best?
    grid: {pipeline.mode: [pipe, no-pipe]}
    compare: {baseline: {pipeline.mode: pipe}}
    published:
      source: the Journal of Modes
      points:
        - {at: {pipeline.mode: no-pipe}, epoch_seconds_ratio: 1.90625, dollars_graph_servers: 0.4375}
        - {at: {pipeline.mode: pipe}, dollars_graph_servers: 0.28125}
  backends:
    grid: {simulation.backend: [functions, cpu]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that is done, with its report. Not to be changed."""
    path = tmp_path_factory.mktemp("simulated")
    (path / "s.yaml").write_text(TEXT)
    assert main(["--sweep", str(path / "s.yaml"), "--out", str(path / "out"), "--jobs", "1"]) == 0
    return path / "out"


def test_parts_are_sections_without_accuracy(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    assert "3 of 3 runs done. Nothing was trained" in text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "modes",
        "backends",
        "Run it again",
        "Software and hardware",
    ]
    assert "Which mode is best?" in text
    assert " of 1 published ratios are reproduced within 30 %" in text.partition("## modes")[0]
    assert "accuracy" not in text.lower()
    assert "loss" not in text
    verdicts = text.partition("### Verdicts")[2]
    header = next(line for line in verdicts.splitlines() if line.startswith("| variant | "))
    row = next(line for line in verdicts.splitlines() if line.startswith("| no-pipe | "))
    cells = dict(zip(header.strip("| ").split(" | "), row.strip("| ").split(" | "), strict=True))
    assert cells["published time of an epoch"] == "1.91"
    assert cells["verdict"] == "slower"
    assert "| $0.44 |" in text
    assert "Published: the Journal of Modes." in text


def test_figures_show_published_points_beside_ours(folder: Path) -> None:
    names = {path.name for path in (folder / "figures").iterdir()}
    expected = ("published", "0-ratios", "1-ratios")
    assert names == {f"{name}.{suffix}" for name in expected for suffix in ("svg", "pdf", "csv")}
    assert "published: the Journal of Modes" in (folder / "figures" / "0-ratios.svg").read_text()
    rows = pandas.read_csv(folder / "figures" / "published.csv")
    assert list(rows["published"]) == [1.90625]


def test_a_report_while_runs_are_missing(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    words = ["--sweep", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main([*words, "--only", "pipeline.mode=no-pipe"]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "1 of 1 runs done" in text
    assert "Relative to" not in text
