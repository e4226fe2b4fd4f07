"""Reports: their content, the same bytes every time, no text of a file taken for markup."""

from __future__ import annotations

import os
import re
import shutil
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from typing import Any

import pandas
import pytest
from support import reports
from support.reports import EPOCHS, TARGET, TEXT, accuracy, seconds, sweep, trace, written_report, written_study

from dorylax.errors import RunWarning
from dorylax.experiments.folder import read_study, write_sweep
from dorylax.experiments.report import figures, page, write_report
from dorylax.experiments.report.inside import IN_VAIN, one_epoch, read_trace, task_seconds, traced_epochs
from dorylax.experiments.report.write import command
from dorylax.experiments.runner import directory
from dorylax.experiments.sweep_file import load, read
from dorylax.figure_style import ALL
from dorylax.store.trace import TraceFile, line_of

FIGURES = (
    *("accuracy-epochs", "accuracy-time", "accuracy-cost", "ratios", "staleness"),
    *("timelines", "tasks"),
)


SMALL = [("model.name", "gcn"), ("train.seed", "0")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one folder with a whole report whose figures are drawn. Not to be changed."""
    path = tmp_path_factory.mktemp("report")
    written_report(path, TARGET)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on a few runs, drawn. Not to be changed."""
    path = tmp_path_factory.mktemp("small")
    written_report(path, only=SMALL)
    return path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures have their names, and are not drawn, which takes most of a report's time."""
    monkeypatch.setattr(figures, "svg", lambda *_, **__: "<svg></svg>")
    monkeypatch.setattr(page, "write_files", lambda figure, folder: (folder / f"{figure.name}.svg").touch())


def test_every_figure_is_there_as_svg_pdf_and_csv(folder: Path) -> None:
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names == {"overview", *(f"{place}-{name}" for place in (0, 1) for name in FIGURES)}
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".svg", ".pdf", ".csv"}
    for path in (folder / "figures").glob("*.svg"):
        ET.parse(path)
        assert "fill: #ffffff" in path.read_text(encoding="utf-8")  # the background
    for path in (folder / "figures").glob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF")


def test_the_data_of_a_figure_are_beside_it(folder: Path) -> None:
    curve = pandas.read_csv(folder / "figures" / "0-accuracy-time.csv")
    mine = curve[curve["variant"] == "pipe"]
    runs = [run for run in sweep().runs if run.name == "gcn, pipe"]
    assert list(mine["simulated seconds"]) == pytest.approx([0.2 * (epoch + 1) for epoch in range(EPOCHS)])
    last = [100 * accuracy(run, EPOCHS - 1) for run in runs]
    assert mine["mean_percent"].iloc[-1] == pytest.approx(sum(last) / 3)
    assert mine["low_percent"].iloc[-1] == pytest.approx(min(last))
    whole = pandas.read_csv(folder / "figures" / "overview.csv").set_index(["panel", "row"])
    assert whole.loc[("async S=0", "mean over groups"), "estimate"] == pytest.approx(0.94, abs=0.01)


def plain(path: Path) -> bytes:
    """A file's bytes without the path of its folder, which the command names."""
    folder = path.parent if path.suffix in (".html", ".md") else path.parents[1]
    return path.read_bytes().replace(os.path.relpath(folder).encode(), b"FOLDER")


def test_the_same_bytes_again(small: Path, tmp_path: Path) -> None:
    written_report(tmp_path, only=SMALL)
    for name in (
        "report.html",
        "report.md",
        "figures/accuracy-epochs.svg",
        "figures/timelines.pdf",
        "figures/accuracy-time.csv",
    ):
        again, before = (plain(folder / name) for folder in (tmp_path, small))
        assert again == before, name


@pytest.mark.usefixtures("undrawn")
def test_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    written_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    baseline = [run for run in sweep().runs if run.name == "gcn, pipe"]
    target = sum(accuracy(run, EPOCHS - 1) for run in baseline) / 3 - 0.01
    assert f"Target: {100 * target:.2f} % validation accuracy" in text
    crossings = [
        next(epoch + 1 for epoch in range(2, EPOCHS) if sum(accuracy(run, epoch - k) for k in range(3)) / 3 >= target)
        for run in baseline
    ]
    mean = sum(crossings) / 3
    row = next(line for line in text.splitlines() if line.startswith("| pipe | 3 of 3 |"))
    assert f"| {mean:.1f} | {mean * seconds(baseline[0]):.3g} s |" in row
    assert "14 of 15 runs done, 1 failed" in text
    assert "| async S=0 | 2 of 3 |" in text  # of gat, whose last run has failed


def first_sentence(folder: Path) -> str:
    """The answer below the title, in both files."""
    html = (folder / "report.html").read_text(encoding="utf-8")
    (in_page,) = re.findall(r'<p class="answer">(.*?)</p>', html, re.DOTALL)
    assert html.index(in_page) < html.index("<figure>") < html.index("<table")
    assert unescape(in_page) in (folder / "report.md").read_text(encoding="utf-8").splitlines()[:5]
    return unescape(in_page)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (
            "time",
            "On the mean over 2 groups, async S=0 is faster than pipe: 0.94 × the simulated time to the target "
            "(2 seeds), less accurate.",
        ),
        (
            "accuracy",
            "On the mean over 2 groups, no variant is as accurate as pipe: async S=0 comes closest with -1.4 points of test "
            "accuracy (95 % interval -1.5 to -1.2, 2 seeds).",
        ),
    ],
)
def test_the_first_sentence_answers_the_question(tmp_path: Path, asks: str, words: str) -> None:
    written_report(tmp_path, TARGET.replace("target: 0.6", f"target: 0.6, asks: {asks}"))
    assert first_sentence(tmp_path) == words


@pytest.mark.usefixtures("undrawn")
def test_title_question_and_labels_are_those_of_the_file(tmp_path: Path) -> None:
    texts = "title: Bounded staleness\nquestion: Does it pay?\n"
    labels = "pipeline.staleness: [null, 0, 1]\n  label: [synchronous, strict, loose]"
    written_report(tmp_path, texts + TARGET.replace("pipeline.staleness: [null, 0, 1]", labels))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# Bounded staleness\n\nDoes it pay?\n\nOn the mean over 2 groups, strict is faster than synch"
    )
    assert "| loose |" in text
    assert "| async S=1 |" not in text


@pytest.mark.usefixtures("undrawn")
def test_the_sweep_of_the_guide_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first sentence, over all of its groups; its runs are made up here."""
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(Path.*?|from pathlib.*?)^```$", guide, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/experiments.md", "exec"), {"Path": Path})
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    asked = re.search(
        r"^question: Does bounded staleness bring my model to its accuracy in less time", text, re.MULTILINE
    )
    assert asked is not None
    monkeypatch.setattr(reports, "accuracy", lambda run, epoch: 0.9 - 0.8 * 0.5**epoch)
    monkeypatch.setattr(reports, "sweep", lambda text: read(text, "mine.yaml", "mine"))
    written_report(tmp_path / "out", text)
    assert first_sentence(tmp_path / "out").startswith(
        "On the mean over 3 groups, async S=1 is faster than pipe: 0.75 × the simulated time to the target ("
    )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("asks", ["time", "cost", "accuracy"])
def test_where_nothing_reaches_the_target_nothing_is_claimed(tmp_path: Path, asks: str) -> None:
    """No ratio, no value, no verdict: in no sentence, table or figure, though asynchronous epochs take less time."""
    written_report(tmp_path, TEXT.replace("pipe}}", f"pipe}}, target: 0.99, asks: {asks}}}"))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "No run reaches its target in any group: nothing is compared." in text
    assert "×" not in text.replace("× the mean", "")  # how busy servers are
    assert "verdict" not in text
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert not [name for name in names if re.search("ratios|overview", name)]


def test_what_it_rests_on_is_told(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    rest = text.partition("## Software and hardware")[2]
    for line in ("- seeds: 0, 1, 2", "- date: 2026-11-26", "- python: 3.", "- machine: ", "- jax: 0.", "- dorylax: "):
        assert line in rest
    table = text.partition("### Different settings")[2].split("\n\n")[1]
    header, _, *rows = table.splitlines()
    assert header.startswith("| variant | pipeline.mode | pipeline.staleness |")
    assert "pipeline.freshness" in header  # which follows from the mode
    assert "train.seed" not in header
    assert rows[0].startswith("| pipe | pipe | null |")


def test_what_is_text_stays_text(folder: Path) -> None:
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "Does &lt;staleness&gt; pay &amp; how?" in html
    assert "<staleness>" not in html
    assert "a &lt;b&gt;bad&lt;/b&gt; value" in html
    assert "compare: {baseline: {pipeline.mode: pipe}, target: 0.6}" in html  # the sweep's file
    assert "interval_step_scaling: true" in html  # a default, in the whole configuration
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"|<rdf:RDF.*?</rdf:RDF>', "", html, flags=re.DOTALL)


def test_of_traces_that_do_not_hold_all_epochs_it_is_said(folder: Path) -> None:
    html = (folder / "report.html").read_text(encoding="utf-8")
    said = "(traces hold 3 of the 12 epochs of pipe, 3 of the 12 epochs of async S=0)"
    for sentence in ("functions together", "for pipe, async S=0"):
        assert f"{sentence} {said}." in html


def test_inlined_figures_have_the_colors_of_the_page(folder: Path) -> None:
    html = (folder / "report.html").read_text(encoding="utf-8")
    drawn = html[html.index("<figure") :]
    assert {color.light for color in ALL if color.light in drawn} == set()
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", drawn)) <= {"#000000"}  # of matplotlib's style sheet


def test_a_full_disk_leaves_the_report_before(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "write_files", full)
    with pytest.raises(OSError, match="No space left"):
        write_report([read_study(tmp_path)], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_with_nothing_done_there_are_only_tables(tmp_path: Path) -> None:
    written_study(tmp_path)
    for path in (tmp_path / "runs").glob("*/summary.json"):
        path.unlink()
    page = write_report([read_study(tmp_path)], tmp_path).read_text(encoding="utf-8")
    assert "0 of 15 runs done" in page
    assert "<figure" not in page


@pytest.mark.usefixtures("undrawn")
def test_several_sweeps_in_one_report(tmp_path: Path) -> None:
    written_study(tmp_path, only=[("model.name", "gcn"), ("pipeline.mode", "pipe"), ("train.seed", "0")])
    studies = [read_study(tmp_path)] * 2
    page = write_report(studies, tmp_path).read_text(encoding="utf-8")
    assert "<title>made + made</title>" in page
    assert page.count("<summary>made: gcn</summary>") == 2


@pytest.mark.parametrize(("installed", "words"), [("/bin/dorylax", "dorylax sweep"), (None, "-m dorylax sweep")])
def test_the_command_works_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str | None, words: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: installed)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "made.yaml").write_text(TEXT)
    (tmp_path / "runs" / "made").mkdir(parents=True)
    write_sweep(tmp_path / "runs" / "made", load(tmp_path / "files" / "made.yaml"), [])
    monkeypatch.chdir(tmp_path)
    assert command(read_study(Path("runs/made"))).endswith(f"{words} files/made.yaml")
    monkeypatch.chdir(tmp_path / "files")
    assert command(read_study(Path("../runs/made"))).endswith(f"{words} made.yaml --out ../runs/made")


# Figures from traces.


def tasks_of(folder: Path, events: list[dict[str, Any]]) -> pandas.DataFrame:
    """The tasks of a trace with these events."""
    file = TraceFile(folder / "trace.json")
    file.append([line_of(event) for event in events])
    file.close()
    return read_trace(folder / "trace.json")


def test_an_epoch_of_usual_length(tmp_path: Path) -> None:
    tasks = one_epoch(tasks_of(tmp_path, trace(0.5)))
    assert tasks["end"].max() == pytest.approx(0.5)  # not the first one's, which is twice as long
    assert tasks["start"].min() == 0
    kinds = {(task.kind, task.lane) for task in tasks.itertuples()}
    assert {("network", "network 0"), (IN_VAIN, "tensor 0"), ("WU", "parameters 0")} <= kinds


def test_where_a_sample_leaves_epochs_out_an_epoch_does_not_last_until_the_next_that_is_there(tmp_path: Path) -> None:
    """Epochs 0 and 1 take a second each, as does 50, whose tasks in an asynchronous run lie beside those of 51."""
    times = {0: (0, 1), 1: (1, 4), 50: (50, 51), 51: (51, 54), 80: (80, 83), 90: (90, 93)}
    task = {"name": "GA", "ph": "X", "cat": "graph", "pid": 0, "tid": 0}
    events = [
        {
            **task,
            "ts": 1e6 * start,
            "dur": 1e6 * (end - start),
            "args": {"epoch": epoch, "kind": "graph", "server": 0, "interval": 0},
        }
        for epoch, (start, end) in times.items()
    ]
    tasks = tasks_of(tmp_path, events)
    assert one_epoch(tasks)["end"].max() == pytest.approx(1.0)
    assert traced_epochs(tasks) == 6


def test_a_lane_without_a_name_is_called_by_its_resource(tmp_path: Path) -> None:
    """In a damaged trace."""
    tasks = tasks_of(tmp_path, [event for event in trace(0.5) if event["ph"] != "M"])
    assert set(one_epoch(tasks)["lane"]) == {"graph", "tensor", "network", "parameters"}


def test_seconds_of_tasks_per_epoch(tmp_path: Path) -> None:
    found = task_seconds(tasks_of(tmp_path, trace(0.5)))
    # Three epochs of 1, 0.5 and 0.5 seconds; a fifth of each for every task.
    assert found == pytest.approx(dict.fromkeys(("AV", "network", "GA", IN_VAIN, "WU"), 2.0 / 15))


def test_no_trace_is_none(tmp_path: Path) -> None:
    assert read_trace(tmp_path / "trace.json") is None
    assert one_epoch(tasks_of(tmp_path, [])).empty


@pytest.mark.parametrize(
    "damage",
    [
        ('"epoch":1', '"epoci":1'),
        ('"ph":"X"', '"px":"X"'),
        ('"ph":"M"', '"px":"M"'),
        ('"dur":', '"dus":'),
        ('"ts":', '"tt":'),
        ('"name":', '"namd":'),
        ('"kind":', '"kint":'),
        ('"pid":', '"pie":'),
        ('"tid":', '"tid":9'),
        ('"tid":0', '"tid":" "'),
    ],
)
def test_a_trace_with_damaged_events_is_shown_as_far_as_it_is_whole(tmp_path: Path, damage: tuple[str, str]) -> None:
    path = tmp_path / "trace.json"
    whole = len(tasks_of(tmp_path, trace(0.5)))
    for place in range(path.read_text().count(damage[0])):
        damaged = tmp_path / "damaged.json"
        parts = path.read_text().split(damage[0])
        damaged.write_text(damage[0].join(parts[: place + 1]) + damage[1] + damage[0].join(parts[place + 1 :]))
        found = read_trace(damaged)
        assert len(found) <= whole
        one_epoch(found)
        task_seconds(found)
        traced_epochs(found)


def test_servers_are_those_of_the_first_run_of_each_variant(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "| pipe: 0 | 25.0 % | 0.5 (≤ 2) | 1.2 (≤ 3) | 20 ms | 40 ms | 2 ms | 6 | 1.5 MB | 0: 100 % | – |" in text
    late = "50.0 % | 0.5 (≤ 5) | 1.2 (≤ 3) | 0 ms | 7.5 ms | 1.5 ms | 6 | 1.5 MB | -1: 5 %, 0: 60 %, 1: 35 % | 12 late"
    assert f"| async S=1: 1 | {late} |" in text
    assert "| pipe: 0 | 1.0 % | 4 | 16 | 1 | 1 | 2.0 kB | 4.1 kB | ≤ 4 |" in text


@pytest.mark.usefixtures("undrawn")
def test_runs_without_servers_show_none(tmp_path: Path) -> None:
    """As those of earlier versions do, which left no such file."""
    written_study(tmp_path)
    for path in tmp_path.glob("runs/*/servers.jsonl"):
        path.unlink()
    write_report([read_study(tmp_path)], tmp_path)
    assert "servers" not in (tmp_path / "report.md").read_text().partition("## Run it again")[0]


@pytest.mark.usefixtures("undrawn")
def test_of_servers_what_a_killed_process_has_of_its_last_epoch_is_left_out(folder: Path, tmp_path: Path) -> None:
    written_study(tmp_path, TARGET)
    for path in tmp_path.glob("runs/*/servers.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines, lines[0].replace('"epoch": 0', f'"epoch": {EPOCHS}')[:50]]))
    write_report([read_study(tmp_path)], tmp_path)
    assert plain(tmp_path / "report.md") == plain(folder / "report.md")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            ('"graph_threads": 2', '"graph_thread": 2'),
            r"servers\.jsonl is damaged \(line 1: .*the report goes without it",
        ),
        (('"schema": 2', '"schema": 9'), r"servers\.jsonl.*the report goes without it"),
    ],
)
def test_a_report_goes_without_servers_that_are_damaged(tmp_path: Path, damage: tuple[str, str], message: str) -> None:
    written_study(tmp_path)
    (first, *_) = [run for run in sweep().runs if run.name == "gcn, pipe"]
    path = directory(tmp_path, first) / "servers.jsonl"
    path.write_text(path.read_text().replace(*damage))
    with pytest.warns(RunWarning, match=message):
        write_report([read_study(tmp_path)], tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| async S=0: 1 | 50.0 %" in text
    assert "| pipe: 1 | 50.0 %" not in text.partition("## gat")[0]


@pytest.mark.usefixtures("undrawn")
def test_a_report_goes_without_a_trace_that_is_none(tmp_path: Path) -> None:
    written_study(tmp_path)
    traces = sorted(tmp_path.glob("runs/*/trace.json"))
    for path in traces:
        path.write_text("{}")
    with pytest.warns(RunWarning, match="is not a trace of a dorylax run: .*; the report goes without it"):
        write_report([read_study(tmp_path)], tmp_path)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert "0-accuracy-epochs.svg" in names
    assert "0-timelines.svg" not in names
