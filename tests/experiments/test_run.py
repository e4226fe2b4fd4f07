"""`experiments/run.py`: sweeps end to end on the tiny built-in graph."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dorylax.experiments.run import main
from dorylax.progress import ProgressBar
from dorylax.run_directory import RunDirectory
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
    assert main(["--sweep", str(folder / "s.yaml"), "--out", str(folder / "out")]) == 0
    return folder / "out"


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_leaves_directories_and_tidy_tables(finished: Path) -> None:
    rows = _rows(finished / "results.csv")
    assert [(row["model.name"], row["train.seed"]) for row in rows] == [
        ("mlp", "0"),
        ("mlp", "1"),
        ("gcn", "0"),
        ("gcn", "1"),
    ]
    assert {path.name for path in (finished / "runs").iterdir()} == {row["run"] for row in rows}
    for row in rows:
        summary = RunDirectory.open(finished / "runs" / row["run"]).summary
        assert summary is not None
        assert float(row["test_accuracy"]) == summary["test_accuracy"]
        assert float(row["final_loss"]) == summary["final_loss"]
        assert (row["status"], row["epochs"], row["train.patience"]) == ("done", "3", "")
    timings = _rows(finished / "timings.csv")
    assert [row["run"] for row in timings] == [row["run"] for row in rows]
    assert all(float(row["seconds_per_epoch"]) > 0 for row in timings)
    assert "seconds" not in (finished / "results.csv").read_text()


def test_prints_mean_and_deviation_by_setting(sweep: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sweep", str(sweep), "--out", str(finished)]) == 0
    out = capsys.readouterr().out
    accuracies = [float(row["test_accuracy"]) for row in _rows(finished / "results.csv")[:2]]
    line = next(line for line in out.splitlines() if "mlp" in line)
    assert "2/2" in line
    assert f"{50 * sum(accuracies):.1f} ± " in line


def test_nothing_is_done_twice(sweep: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (finished / "results.csv").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "fit", fail)
    assert main(["--sweep", str(sweep), "--out", str(finished)]) == 0
    assert (finished / "results.csv").read_bytes() == before


def test_killed_and_started_again_it_gives_the_same_bytes(sweep: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # It kills itself in the middle of the third run, after a checkpoint.
    script = (
        "import os, signal, sys; from dorylax.experiments.run import main; from dorylax.progress import ProgressBar\n"
        "count = iter(range(100))\n"
        "ProgressBar.epoch = lambda self, record: next(count) == 7 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"main(['--sweep', {str(sweep)!r}, '--out', {str(out)!r}])"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [row["status"] for row in _rows(out / "results.csv")] == ["done", "done", "open", "open"]
    third = out / "runs" / _rows(out / "results.csv")[2]["run"]
    assert list((third / "checkpoints").glob("epoch-*"))
    assert main(["--sweep", str(sweep), "--out", str(out)]) == 0
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()
    epochs = [json.loads(line)["epoch"] for line in (third / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
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

    def epoch(self: ProgressBar, record: EpochRecord) -> None:
        if next(count) == 4:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ProgressBar, "epoch", epoch)
    assert main(["--sweep", str(sweep), "--out", str(tmp_path / "out")]) == code
    assert [row["status"] for row in _rows(tmp_path / "out" / "results.csv")] == ["done", "open", "open", "open"]
    assert "what is done is kept" in capsys.readouterr().err


def test_a_failed_run_is_recorded_and_the_others_go_on(
    sweep: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fit = Trainer.fit

    def second_fails(self: Trainer) -> TrainResult:
        if type(self.model).__name__ == "MLP" and self.options.seed == 1:
            raise TrainingError("the loss became NaN")
        return fit(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", second_fails)
        assert main(["--sweep", str(sweep), "--out", str(out)]) == 1
    rows = _rows(out / "results.csv")
    assert [row["status"] for row in rows] == ["done", "failed", "done", "done"]
    trace = (out / "errors" / f"{rows[1]['run']}.txt").read_text()
    assert trace.startswith("Traceback")
    assert trace.endswith("TrainingError: the loss became NaN\n")
    captured = capsys.readouterr()
    assert "1/2, 1 failed" in captured.out
    assert "1 of 4 runs failed" in captured.err
    # The next start tries it again.
    assert main(["--sweep", str(sweep), "--out", str(out)]) == 0
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()
    assert not list((out / "errors").iterdir())


def test_each_data_set_is_loaded_once(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dorylax import trainer

    loaded = []
    prepare = trainer.prepare_data

    def counted(config):
        loaded.append(config)
        return prepare(config)

    monkeypatch.setattr(trainer, "prepare_data", counted, raising=False)
    sweep.write_text(_SWEEP.replace("[mlp, gcn]", "[mlp]").replace("epochs: 3", "epochs: 1"))
    assert main(["--sweep", str(sweep), "--out", str(tmp_path / "out")]) == 0
    assert len(loaded) == 1


def test_dry_run_writes_nothing(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["--sweep", str(sweep), "--dry-run", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"4 of 4 runs to do, in {out}"
    assert lines[0].endswith("  open    model.name=mlp, train.seed=0")
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to run: --sweep, --sweep FILE, or --list"),
        (["--sweep", "modls"], "no such sweep 'modls': did you mean models? Or give a file, FILE.yaml"),
        (["--sweep", "none.yaml"], "cannot read none.yaml: No such file or directory"),
        (["--sweap"], "no such option --sweap: did you mean --sweep?"),
    ],
)
def test_what_cannot_be_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")


def test_data_that_do_not_exist_stop_it_before_it_starts(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, message in (
        ("coar", "unknown data.name 'coar': did you mean cora?"),
        ("none.npz", "data.name: there is no file none.npz"),
    ):
        sweep.write_text(f"base: {{data.name: {name}}}\ngrid: {{model.name: [gcn]}}\n")
        assert main(["--sweep", str(sweep), "--out", str(tmp_path / "out")]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
    assert not (tmp_path / "out").exists()


def test_sweep_without_a_file_is_the_one_that_ships(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sweep", "--dry-run", "--out", "nowhere"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "15 of 15 runs to do, in nowhere"
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.startswith("models: 15 runs. ")


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
    assert done.stdout.startswith("models: 15 runs. ")


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
    damaged = out / "runs" / _rows(out / "results.csv")[1]["run"] / name
    damaged.unlink()
    if content is not None:
        damaged.write_text(content)
    assert main(["--sweep", str(sweep), "--dry-run", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["  done  " in line for line in lines[:4]] == [True, False, True, True]
    lost = name == "config.yaml"  # then it is not known whose checkpoints those are
    assert main(["--sweep", str(sweep), "--out", str(out)]) == int(lost)
    statuses = [row["status"] for row in _rows(out / "results.csv")]
    assert statuses == ["done", "failed" if lost else "done", "done", "done"]
    if not lost:
        assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("data.size: tny", "unknown data.size 'tny' of communities: did you mean tiny?"),
        ("{data.name: cora, data.size: tiny}", "data.size 'tiny': cora comes in one size, leave data.size away"),
    ],
)
def test_sizes_are_checked_before_anything_runs(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], base: str, message: str
) -> None:
    sweep.write_text(f"base: {base if base[0] == '{' else '{' + base + '}'}\ngrid: {{model.name: [gcn]}}\n")
    assert main(["--sweep", str(sweep), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not (tmp_path / "out").exists()
