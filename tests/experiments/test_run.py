"""`experiments/run.py`: sweeps end to end on the tiny built-in graph."""

from __future__ import annotations

import csv
import json
import multiprocessing.resource_tracker
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.leftovers import children

from dorylax.cli.app import main as dorylax
from dorylax.experiments import execution, table
from dorylax.experiments import run as run_module
from dorylax.experiments.executors.local import InProcess
from dorylax.experiments.folder import read_study
from dorylax.experiments.progress import SweepProgress
from dorylax.experiments.run import _at_a_time, main
from dorylax.experiments.runner import error_file
from dorylax.experiments.sweep import Run, RunOutcome
from dorylax.experiments.sweep_file import load, read
from dorylax.store.run_directory import RunDirectory
from dorylax.trainer import EpochRecord, Trainer, TrainingError, TrainResult

_ROOT = Path(__file__).parent.parent.parent
_SWEEP = """\
base:
  data.size: tiny
  train.epochs: 3
  train.checkpoint_every: 1
grid:
  model.name: [mlp, gcn]
seeds: 2
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(_SWEEP)
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sweep above, run in one go. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "s.yaml").write_text(_SWEEP)
    assert _sweep(folder / "s.yaml", folder / "out") == 0
    return folder / "out"


def _sweep(path: Path, out: Path, *words: str) -> int:
    """Runs a sweep, one run after the other unless told otherwise, and without a report; gives the exit code."""
    return main(["--sweep", str(path), "--out", str(out), "--no-report", "--jobs", "1", *words])


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def _results(out: Path) -> list[dict[str, str]]:
    """The rows of results.csv, not by key but in the order of the sweep above."""
    return sorted(_rows(out / "results.csv"), key=lambda row: (row["model.name"] != "mlp", row["train.seed"]))


def _statuses(out: Path) -> list[str]:
    return [row["status"] for row in _results(out)]


def test_leaves_directories_and_tidy_tables(finished: Path) -> None:
    rows = _rows(finished / "results.csv")
    assert [row["run"] for row in rows] == sorted(row["run"] for row in rows)
    assert [(row["model.name"], row["train.seed"]) for row in _results(finished)] == [
        ("mlp", "0"),
        ("mlp", "1"),
        ("gcn", "0"),
        ("gcn", "1"),
    ]
    assert {path.name for path in (finished / "runs").iterdir()} == {row["run"] for row in rows}
    for row in rows:
        summary = RunDirectory.open(finished / "runs" / row["run"]).summary
        assert float(row["test_accuracy"]) == summary["test_accuracy"]
        assert float(row["final_loss"]) == summary["final_loss"]
        assert (row["status"], row["epochs"], row["train.patience"]) == ("done", "3", "")
    timings = _rows(finished / "timings.csv")
    assert [row["run"] for row in timings] == [row["run"] for row in rows]
    assert all(float(row["seconds_per_epoch"]) > 0 for row in timings)
    assert "seconds" not in (finished / "results.csv").read_text()


def test_prints_mean_and_deviation_by_setting(sweep: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _sweep(sweep, finished) == 0
    out = capsys.readouterr().out
    accuracies = [float(row["test_accuracy"]) for row in _results(finished)[:2]]
    line = next(line for line in out.splitlines() if "mlp" in line)
    assert "the same for all: runs 2/2" in out
    assert f"{50 * sum(accuracies):.1f} ± " in line


def test_nothing_is_done_twice(sweep: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (finished / "results.csv").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "fit", fail)
    assert _sweep(sweep, finished) == 0
    assert (finished / "results.csv").read_bytes() == before


def test_killed_and_started_again_it_gives_the_same_bytes(sweep: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # It kills itself in the middle of the third run, after a checkpoint.
    script = (
        "import os, signal, sys; from dorylax.experiments.run import main\n"
        "from dorylax.experiments.progress import SweepProgress\n"
        "count = iter(range(100))\n"
        "SweepProgress.epoch = lambda *_: next(count) == 7 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"main(['--sweep', {str(sweep)!r}, '--out', {str(out)!r}, '--jobs', '1'])"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _statuses(out) == ["done", "done", "open", "open"]
    third = out / "runs" / _results(out)[2]["run"]
    assert list((third / "checkpoints").glob("epoch-*"))
    assert _sweep(sweep, out) == 0
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()
    epochs = [json.loads(line)["epoch"] for line in (third / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_keeps_what_is_done(
    sweep: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    number: int,
    code: int,
) -> None:
    count = iter(range(100))

    def epoch(self: SweepProgress, run: Run, record: EpochRecord) -> None:
        if next(count) == 4:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(SweepProgress, "epoch", epoch)
    assert _sweep(sweep, tmp_path / "out") == code
    assert _statuses(tmp_path / "out") == ["done", "open", "open", "open"]
    assert "finished runs are kept" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_sweep_even_if_its_run_fails(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def epoch(self: SweepProgress, run: Run, record: EpochRecord) -> None:
        os.kill(os.getpid(), number)
        raise OSError("the disk is full")

    monkeypatch.setattr(SweepProgress, "epoch", epoch)
    assert _sweep(sweep, tmp_path / "out") == 143
    assert _statuses(tmp_path / "out") == ["failed", "open", "open", "open"]
    # The next start gets a signal, too, but its run can save: it no longer counts as failed.
    signals = iter([number])
    monkeypatch.setattr(SweepProgress, "epoch", lambda *_: os.kill(os.getpid(), next(signals, 0)))
    _sweep(sweep, tmp_path / "out")
    assert _statuses(tmp_path / "out") == ["open"] * 4


def test_a_failed_run_is_recorded_and_the_others_go_on(
    sweep: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fit = Trainer.fit

    def second_fails(self: Trainer, **options: bool) -> TrainResult:
        if type(self.model).__name__ == "MLP" and self.options.seed == 1:
            raise TrainingError("the loss became NaN")
        return fit(self, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", second_fails)
        assert _sweep(sweep, out) == 1
    rows = _results(out)
    assert [row["status"] for row in rows] == ["done", "failed", "done", "done"]
    trace = (out / "errors" / f"{rows[1]['run']}.txt").read_text()
    assert trace.startswith("Traceback")
    assert trace.endswith("TrainingError: the loss became NaN\n")
    captured = capsys.readouterr()
    assert "1/2, 1 failed" in captured.out
    assert "1 of 4 runs failed" in captured.err
    # The next start tries it again.
    assert _sweep(sweep, out) == 0
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()
    assert not (out / "errors").exists()


def test_each_data_set_is_loaded_once(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dorylax import trainer

    loaded = []
    prepare = trainer.prepare_data

    def counted(config):
        loaded.append(config)
        return prepare(config)

    monkeypatch.setattr(trainer, "prepare_data", counted, raising=False)
    sweep.write_text(_SWEEP.replace("[mlp, gcn]", "[mlp]").replace("epochs: 3", "epochs: 1"))
    assert _sweep(sweep, tmp_path / "out") == 0
    assert len(loaded) == 1


def test_dry_run_writes_nothing(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert _sweep(sweep, out, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"4 of 4 runs to do, in {out}"
    assert lines[0].endswith("  open    mlp, seed 0")
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to run: --sweep, --sweep FILE, or --list"),
        (["--sweap"], "no such option --sweap: did you mean --sweep?"),
    ],
)
def test_what_cannot_be_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")


@pytest.mark.parametrize(("program", "words"), [(main, ["--sweep"]), (dorylax, ["sweep"])])
def test_sweep_without_a_file_is_the_one_that_ships(
    capsys: pytest.CaptureFixture[str], program: Callable[[list[str]], int], words: list[str]
) -> None:
    assert program([*words, "--dry-run", "--out", "nowhere"]) == 0
    runs = len(load(_ROOT / "experiments" / "configs" / "flagship.yaml").runs)
    assert capsys.readouterr().out.splitlines()[-1] == f"{runs} of {runs} runs to do, in nowhere"
    assert program([*words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list((_ROOT / "experiments" / "configs").glob("*.yaml")))
    assert next(line for line in lines if line.startswith("flagship: ")).startswith(f"flagship: {runs} runs. ")


@pytest.mark.parametrize("program", [["{root}/experiments/run.py"], ["-m", "dorylax.experiments.run"]])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_as_a_script_and_as_a_module(program: list[str], elsewhere: bool, tmp_path: Path) -> None:
    words = [word.format(root=_ROOT) for word in program]
    environment = dict(os.environ)
    if elsewhere and "-m" in program:
        environment["PYTHONPATH"] = str(_ROOT)  # what an installation would do
    cwd = tmp_path if elsewhere else _ROOT
    command = [sys.executable, *words, "--list"]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nmodels: 15 runs. " in done.stdout


def test_dorylax_sweep_does_what_the_script_does(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for run in (lambda *words: main(["--sweep", *words]), lambda *words: dorylax(["sweep", *words])):
        assert run(str(sweep), "--only", "model.name=mlp", "--dry-run") == 0
        assert run(str(sweep), "--only", "model.name=ml", "--dry-run") == run("modls") == 2
        shown.append(capsys.readouterr())
    assert shown[0] == shown[1]


def test_the_report_names_a_command_that_works(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dorylax(["report", str(finished), "--out", "report"]) == 0
    again = (tmp_path / "report" / "report.md").read_text().split("## Run it again")[1]
    (words,) = (shlex.split(line) for line in again.splitlines() if " sweep " in line)
    capsys.readouterr()
    assert dorylax([*words[words.index("sweep") :], "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 of 4 runs to do")


def test_no_module_here_shadows_the_standard_library() -> None:
    names = {path.stem for path in (_ROOT / "experiments").glob("*.py")} - {"__init__"}
    assert names
    assert not names & sys.stdlib_module_names


@pytest.mark.parametrize("name", ["environment.json", "summary.json", "config.yaml"])
@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_damaged_run_does_not_stop_the_others(
    sweep: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, name: str, content: str | None
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    damaged = out / "runs" / _results(out)[1]["run"] / name
    damaged.unlink()
    if content is not None:
        damaged.write_text(content)
    assert _sweep(sweep, out, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["  done  " in line for line in lines[:4]] == [True, False, True, True]
    lost = name == "config.yaml"  # then it is not known whose checkpoints those are
    assert _sweep(sweep, out) == int(lost)
    assert _statuses(out) == ["done", "failed" if lost else "done", "done", "done"]
    if not lost:
        assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


# Side by side.


def test_side_by_side_gives_the_same_bytes(sweep: Path, finished: Path, tmp_path: Path) -> None:
    multiprocessing.resource_tracker.ensure_running()  # which stays
    before = children()
    assert _sweep(sweep, tmp_path / "out", "--jobs", "2") == 0
    assert children() <= before
    assert (tmp_path / "out" / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.exhaustive)]
)
def test_a_signal_stops_runs_side_by_side_with_checkpoints(
    sweep: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    number: int,
    code: int,
) -> None:
    """The first run is done, the second and the third are under way, the fourth is not begun."""
    out = tmp_path / "out"
    epochs = [1, 1_000_000, 1_000_001, 1_000_002]
    sweep.write_text(f"base: {{data.size: tiny, model.name: mlp}}\ngrid: {{train.epochs: {epochs}}}\n")
    multiprocessing.resource_tracker.ensure_running()
    before = children()
    seen = set()

    def epoch(self: SweepProgress, run: Run, record: EpochRecord) -> None:
        if run.config.train.epochs > 1 and run.key not in seen:
            seen.add(run.key)
            if len(seen) == 2:
                os.kill(os.getpid(), number)

    left = []
    summary_table = table.summary_table
    monkeypatch.setattr(SweepProgress, "epoch", epoch)
    with monkeypatch.context() as patch:
        patch.setattr(
            table, "summary_table", lambda *words: (left.append(children() - before), summary_table(*words))[1]
        )
        assert _sweep(sweep, out, "--jobs", "2") == code
    assert left == [set()]
    assert "finished runs are kept" in capsys.readouterr().err
    rows = sorted(_rows(out / "results.csv"), key=lambda row: int(row["train.epochs"]))
    assert [row["status"] for row in rows] == ["done", "open", "open", "open"]
    kept = [bool(list((out / "runs" / row["run"]).glob("checkpoints/epoch-*"))) for row in rows]
    assert kept == [True, True, True, False]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_nothing_runs_any_more_when_the_results_are_written(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come at any moment; a run that ended meanwhile is done."""
    events = []

    def execute(_: InProcess, runs: list[Run], folder: Path, *rest: object) -> Iterator[RunOutcome]:
        try:
            for run in runs:
                error = error_file(folder, run)
                error.parent.mkdir(exist_ok=True)
                error.write_text("x")
                yield RunOutcome(run, "failed", error="x")
        finally:
            events.append("all stopped")

    def write_tables(outcomes: list[RunOutcome], folder: Path) -> None:
        events.append("tables")
        if events == ["tables"]:
            raise KeyboardInterrupt

    monkeypatch.setattr(InProcess, "execute", execute)
    monkeypatch.setattr(execution, "write_tables", write_tables)
    assert _sweep(sweep, tmp_path / "out") == 130
    assert events == ["tables", "all stopped", "tables"]


def test_a_run_that_ended_while_it_was_stopped_is_done(
    sweep: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def execute(*_: object) -> Iterator[RunOutcome]:
        shutil.copytree(finished / "runs", out / "runs")
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(InProcess, "execute", execute)
    assert _sweep(sweep, out) == 130
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


# Options.


@pytest.mark.parametrize(
    ("virtual", "runs", "given", "expected"),
    [(True, 9, None, 3), (True, 2, None, 2), (False, 9, None, 1), (False, 9, 2, 2), (True, 9, 99, 9), (True, 0, 5, 1)],
)
def test_how_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, *, virtual: bool, runs: int, given: int | None, expected: int
) -> None:
    """One per core in virtual time, else one; never more than there are runs."""
    clock = "virtual" if virtual else "real"
    text = f"base: {{pipeline.clock: {clock}}}\ngrid: {{pipeline.servers: [1]}}\nseeds: 9\n"
    monkeypatch.setattr(run_module, "cores", lambda: 3)
    assert _at_a_time(read(text, "s.yaml", "s").runs[:runs], given) == expected


def test_only_some_runs(sweep: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    assert _sweep(sweep, out, "--only", "model.name=gcn", "--only", "train.seed=1") == 0
    assert [(row["model.name"], row["train.seed"]) for row in _results(out)] == [("gcn", "1")]
    assert [outcome.run.label for outcome in read_study(out).outcomes] == ["gcn, seed 1"]
    assert _sweep(sweep, out) == 0
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


def test_what_was_left_out_may_have_own_code(sweep: Path, tmp_path: Path) -> None:
    """Who reads the folder expands the whole file, and executes nothing that it names."""
    sweep.write_text(_SWEEP.replace("[mlp, gcn]", '[mlp, "dorylax.simulation.paper_models:GatherFirstGCN"]'))
    assert _sweep(sweep, tmp_path / "out", "--only", "model.name=mlp", "--only", "train.seed=1") == 0
    assert [outcome.run.label for outcome in read_study(tmp_path / "out").outcomes] == ["mlp, seed 1"]


def test_a_dry_run_says_how_long_runs_take(
    sweep: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    for row, seconds in zip(_results(out), (2.0, 4.0, 60.0, None), strict=True):
        run = RunDirectory.open(out / "runs" / row["run"])
        timings = {**run.summary["timings"], "wall": seconds}
        run.write_summary({**run.summary, "timings": timings, "stopped": "signal" if seconds is None else "epochs"})
    assert _sweep(sweep, out, "--dry-run", "--jobs", "3") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "done    mlp, seed 0  (3 s)",
        "done    mlp, seed 1  (3 s)",
        "done    gcn, seed 0  (1 min 00 s)",
        "open    gcn, seed 1  (1 min 00 s)",
    ]
    assert last == f"1 of 4 runs to do, in {out}; about 1 min 00 s with --jobs 1, judging by finished runs"


def test_figures_of_the_user_are_left_alone(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "paper"
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "mine.png").touch()
    assert _sweep(sweep, out) == 2
    message = f"error: --out {out} has figures that belong to no report and would be lost: choose another folder\n"
    assert capsys.readouterr().err == message
    assert [path.relative_to(out) for path in out.rglob("*")] == [Path("figures"), Path("figures/mine.png")]


def test_a_folder_of_another_sweep_is_left_alone(
    sweep: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "results.csv").read_bytes()
    other = sweep.rename(tmp_path / "other.yaml")
    for words in ([], ["--dry-run"]):
        assert _sweep(other, finished, *words) == 2
        message = f"error: {finished} is the folder of sweep s, not of other: give another --out\n"
        assert capsys.readouterr() == ("", message)
    assert (finished / "results.csv").read_bytes() == before


def test_side_by_side_from_a_script_without_a_guard(sweep: Path, tmp_path: Path) -> None:
    """Whose processes would otherwise execute it again, and start the sweep in it."""
    script = tmp_path / "study.py"
    words = ["--sweep", str(sweep), "--out", str(tmp_path / "out"), "--jobs", "2", "--no-report"]
    words += ["--only", "model.name=mlp"]
    script.write_text(f"from dorylax.experiments.run import main\nprint('here', main({words!r}))\n")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr  # nobody has begun the sweep a second time
    assert done.stdout.count("here") == 1
    assert [row["status"] for row in _rows(tmp_path / "out" / "results.csv")] == ["done", "done"]


def test_a_folder_of_the_same_name_does_not_hide_a_sweep_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke").mkdir()
    assert main(["--sweep", "smoke", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("runs to do, in runs/smoke\n")
