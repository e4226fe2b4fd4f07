"""`dorylax simulate --what-if` on small graphs."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import until

from dorylax.simulation.search import COLUMNS

GRID = "servers=1..3,functions=2|4,backend=functions|cpu"


def words(scenario: str, *more: str, grid: str = GRID) -> tuple[str, ...]:
    return ("simulate", "--scenario", scenario, "--what-if", grid, "--epochs", "2", "--jobs", "1", *more)


def test_table_files_and_page(dorylax, scenario: str, tmp_path: Path) -> None:
    table, page = tmp_path / "points.csv", tmp_path / "page.html"
    code, out, err = dorylax(*words(scenario, "--csv", str(table), "--report", str(page), "--deadline", "1h"))
    assert (code, err) == (0, "")
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0].startswith("small: 20 epochs at 9 points, fastest first, prices of 2026-07; ● ")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert len(rows) == 9
    (picked,) = (line for line in lines if line.startswith("picked, "))
    assert picked.startswith("picked, the cheapest within 1 h 00 min: 1 server, on cpu: ")
    assert sum("●" in row[-1] for row in rows) >= 1
    assert [row[:3] for row in rows if "picked" in row[-1]] == [["1", "–", "cpu"]]
    (assumptions,) = (line for line in lines if line.startswith("assumptions: "))
    assert assumptions.startswith("assumptions: graph.cut_ratio = 1, so 0 % of the edges join servers")
    assert lines[-1] == f"report: {page}"
    with table.open() as stream:
        entries = list(csv.DictReader(stream))
    assert list(entries[0]) == list(COLUMNS)
    assert [entry["servers"] for entry in entries] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3
    assert sum(entry["front"] == "true" for entry in entries) == sum("●" in row[-1] for row in rows)
    html = page.read_text()
    assert "What if: small" in html
    assert "--what-if &#39;servers=1..3,functions=2|4,backend=functions|cpu&#39; --epochs 2" in html


def test_json(dorylax, scenario: str) -> None:
    code, out, err = dorylax(*words(scenario, "--json", "--budget", "$5", "--deadline", "90min"))
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert (content["schema"], content["scenario"], content["complete"], content["num_points"]) == (1, "small", True, 9)
    assert content["what_if"] == {"servers": [1, 2, 3], "functions": [2, 4], "backend": ["functions", "cpu"]}
    assert (content["budget_dollars"], content["deadline_seconds"]) == (5.0, 5400.0)
    points, picked = content["points"], content["picked"]
    assert [place for place, point in enumerate(points) if point["front"]] == sorted(content["front"])
    assert points[picked["place"]]["value"] == max(point["value"] for point in points)
    assert points[picked["place"]]["dollars"] == picked["dollars"]["total"]
    assert picked["tasks"]


def test_where_nothing_fits_one_line_names_the_nearest_after_the_table(dorylax, scenario: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = dorylax(*words(scenario, "--deadline", "0.001s", "--report", str(page)))
    assert code == 2
    assert "picked" not in out
    assert sum(line.startswith("│") for line in out.splitlines()) == 9
    assert err.startswith("error: nothing is within 1 ms: the nearest is ")
    assert len(err.splitlines()) == 1
    assert "Nothing is within 1 ms." in page.read_text()
    assert "Picked" not in page.read_text()


def test_what_does_not_fit_is_listed(dorylax, scenario: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = dorylax(*words(scenario, "--report", str(page), grid="servers=2|1500"))
    assert (code, err) == (0, "")
    assert "does not fit: 1500 servers: pipeline.intervals = 3 on 1500 servers are 4500 intervals" in out
    assert "Points that do not fit" in page.read_text()
    code, out, err = dorylax(*words(scenario, grid="servers=1500"))
    assert code == 2
    assert err.startswith("error: no point of the what-if can be simulated: pipeline.intervals = 3 on 1500")


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("sent", "end"), [(signal.SIGINT, (130, "interrupted")), (signal.SIGTERM, (143, "terminated"))], ids=["INT", "TERM"]
)
def test_who_is_stopped_keeps_what_there_is(
    scenario: str, tmp_path: Path, jobs: str, sent: signal.Signals, end: tuple[int, str]
) -> None:
    """In a process of its own, as a terminal would send it to all; those that it has started end with it."""
    table, told = tmp_path / "points.csv", tmp_path / "told"
    program = (
        "import pathlib, sys\n"
        "from dorylax.cli import main\n"
        "from dorylax.simulation import search\n"
        "row, made = search.Tried.__init__, []\n"
        "def tried(*args, **options):\n"
        f"    if made: pathlib.Path({os.fspath(told)!r}).touch()\n"  # the first is known by now
        "    row(*args, **options); made.append(1)\n"
        "search.Tried.__init__ = tried\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    options = ("--csv", str(table), "--json", "--epochs", "9", "--jobs", jobs)
    command = [sys.executable, "-c", program, *words(scenario, *options, grid="servers=1..40/40")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        until(told.exists)
        os.killpg(process.pid, sent)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    code, stopped = end
    assert process.returncode == code
    content = json.loads(out)
    assert not content["complete"]
    assert 0 < len(content["points"]) < content["num_points"] == 40
    assert err.splitlines()[-1] == f"{stopped}: {len(content['points'])} of 40 points were simulated"
    assert len(table.read_text().splitlines()) == 1 + len(content["points"])
